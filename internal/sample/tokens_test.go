package sample

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// The command line works on the data directory while a server runs.
func TestTokensAreCreatedAndRevokedBesideARunningServer(t *testing.T) {
	k := setUp(t)
	cli, err := OpenTokens(t.Context(), Options{Dir: k.dir, Now: k.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()

	made, err := cli.Create(t.Context(), "acme")
	if err != nil || !made.NewWorkspace || made.Workspace != "acme" || !strings.HasPrefix(made.Token, "wpt_"+made.ID+"_") {
		t.Fatalf("Create returns %+v, %v", made, err)
	}
	second, err := cli.Create(t.Context(), "acme")
	if err != nil || second.NewWorkspace {
		t.Fatalf("Create returns %+v, %v: want a token of the same workspace", second, err)
	}
	k.send("GET /v1/wp/status", "Bearer "+made.Token, "").want(200).says("workspace", "acme").says("token_id", made.ID)
	k.visitor("acme")

	if err := cli.Revoke(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	k.clock.pass(time.Second)
	k.send("GET /v1/wp/status", "Bearer "+made.Token, "").wantError(401, "unauthenticated")
	k.send("GET /v1/wp/status", "Bearer "+second.Token, "").want(200)

	all, err := cli.List(t.Context())
	if err != nil || len(all) != 3 { // including the bench's own
		t.Fatalf("List returns %v, %v: want 3", all, err)
	}
	revoked := map[string]time.Time{}
	for _, i := range all {
		revoked[i.ID] = i.Revoked
	}
	if revoked[made.ID].IsZero() || !revoked[second.ID].IsZero() {
		t.Errorf("List returns %v: want %s revoked alone", all, made.ID)
	}
	k.clock.pass(time.Hour)
	if err := cli.Revoke(t.Context(), made.ID); err != nil {
		t.Errorf("revoking again yields %v", err)
	}
	if again, _ := cli.List(t.Context()); again[0].Revoked != all[0].Revoked || again[1].Revoked != all[1].Revoked {
		t.Error("revoking again changed the date")
	}
	if err := cli.Revoke(t.Context(), "nothing"); !errors.Is(err, ErrNoToken) {
		t.Errorf("revoking no token yields %v", err)
	}
}

func TestATokenHasOnePlanThatCanChange(t *testing.T) {
	k := setUp(t)
	tokens := k.b.Tokens()
	made, err := tokens.CreateInPlan(t.Context(), "acme", "gold")
	if err != nil {
		t.Fatal(err)
	}
	none, err := tokens.Create(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	planOf := func(id string) string {
		t.Helper()
		stored, err := tokens.Lookup(id)
		if err != nil {
			t.Fatal(err)
		}
		return stored.Plan
	}
	if a, b := planOf(made.ID), planOf(none.ID); a != "gold" || b != "" {
		t.Errorf("the plans are %q and %q", a, b)
	}
	for _, plan := range []string{"silver", ""} {
		if err := tokens.SetPlan(t.Context(), made.ID, plan); err != nil || planOf(made.ID) != plan {
			t.Errorf("%q: the plan is %q, %v", plan, planOf(made.ID), err)
		}
	}
	for _, bad := range []string{"by", "go ld", made.Token, strings.Repeat("x", 65)} {
		if err := tokens.SetPlan(t.Context(), made.ID, bad); err == nil || strings.Contains(err.Error(), made.Token) {
			t.Errorf("the plan %.8q…: %v", bad, err)
		}
		if _, err := tokens.CreateInPlan(t.Context(), "acme", bad); err == nil {
			t.Errorf("a token with the plan %.8q… was created", bad)
		}
	}
	if err := tokens.SetPlan(t.Context(), "nothing", "gold"); !errors.Is(err, ErrNoToken) {
		t.Errorf("the plan of no token: %v", err)
	}
}

func TestAWorkspaceNameIsOneWord(t *testing.T) {
	k := setUp(t)
	for _, name := range []string{"", "two words", "-x", "a/b", "a\nb", "é", strings.Repeat("x", 65)} {
		if _, err := k.b.Tokens().Create(t.Context(), name); err == nil || !strings.Contains(err.Error(), "expected 1 to 64") {
			t.Errorf("Create(%q) returns %v", name, err)
		}
	}
	if k.rows("workspaces") != 1 {
		t.Error("a workspace was made all the same")
	}
}

func TestNoSecretOfATokenIsStored(t *testing.T) {
	k := setUp(t)
	secret := strings.Split(k.token, "_")[2]
	if n := k.rows("tokens WHERE instr(hash, CAST('" + secret[:16] + "' AS BLOB)) OR instr(id, '" + secret[:8] + "')"); n != 0 {
		t.Error("the secret is in the database")
	}
}

// Workspace demo is created at a first start, unless there is another workspace.
func TestDemoIsMadeOnlyWhereThereIsNoOtherWorkspace(t *testing.T) {
	dir := t.TempDir()
	cli, err := OpenTokens(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cli.Create(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if err := cli.Close(); err != nil {
		t.Fatal(err)
	}
	k := benchOn(t, dir)
	k.b = k.open(Options{Dir: dir})
	k.send("POST /api/v1/widget/init", "", `{"agent_id":"demo"}`).wantError(404, "not_found")
	k.visitor("acme")
}
