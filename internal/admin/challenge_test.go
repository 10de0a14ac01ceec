package admin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/admin"
)

// proven sends a challenge with that Host to the Server, and returns the answer's
// body.
func (f *fixture) proven(c *admin.Challenge, host string) []byte {
	f.Helper()
	return f.answered(call{method: "GET", path: c.Path(), host: host, header: map[string]string{"Authorization": ""}}, nil).Body.Bytes()
}

func TestAServerProvesThatItKnowsTheToken(t *testing.T) {
	f := newFixture(t, nil)
	const host = "127.0.0.1:8081"
	c := admin.NewChallenge(f.token)
	if err := c.Check(host, f.proven(c, host)); err != nil {
		t.Error(err)
	}
	if strings.Contains(c.Path(), strings.TrimPrefix(f.token, "wadm_")) {
		t.Errorf("the path holds the token: %s", c.Path())
	}
	if again := admin.NewChallenge(f.token); again.Path() == c.Path() {
		t.Error("two challenges are the same, so an answer to one could be repeated")
	}
	if err := c.Check("localhost:8081", f.proven(c, host)); !errors.Is(err, admin.ErrOtherHost) {
		t.Errorf("for another Host: %v", err)
	}
	if err := admin.NewChallenge(f.token).Check(host, f.proven(c, host)); !errors.Is(err, admin.ErrNoProof) {
		t.Errorf("an answer that was overheard: %v", err)
	}
	var a admin.ChallengeAnswer
	if err := json.Unmarshal(f.proven(c, "localhost:8081"), &a); err != nil {
		t.Fatal(err)
	}
	a.Host = host
	forged, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"", "{}", "null", "[]", `{"proof":""}`, `{"host":"` + host + `","proof":"AAAA"}`, string(forged)} {
		if err := c.Check(host, []byte(body)); !errors.Is(err, admin.ErrNoProof) {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func TestAnUnknownTokenGetsNoProofAndCountsAsWrong(t *testing.T) {
	f := newFixture(t, nil)
	without := map[string]string{"Authorization": ""}
	for _, path := range []string{"/challenge", "/challenge?token=x", "/challenge?nonce=short&token=x", "/challenge?nonce=" + strings.Repeat("a", 129), "/challenge?nonce=" + strings.Repeat("a", 20) + "%0a"} {
		f.refused(call{method: "GET", path: path, header: without}, 400, "bad_request")
	}
	f.refused(call{method: "POST", path: admin.NewChallenge(f.token).Path(), header: without}, 405, "method_not_allowed")
	f.refused(call{method: "GET", path: admin.NewChallenge(f.token).Path(), host: "evil.example.com", header: without}, 421, "misdirected")
	ask := func(i int) call {
		return call{method: "GET", path: admin.NewChallenge(fmt.Sprint("wadm_", i)).Path(), header: without}
	}
	for i := range 20 {
		if w := f.refused(ask(i), 401, "unauthorized"); !strings.Contains(w.Header().Get("WWW-Authenticate"), admin.Realm) {
			t.Errorf("no realm: %v", w.Header())
		}
	}
	f.refused(ask(20), 429, "rate_limited")
	f.proven(admin.NewChallenge(f.token), "") // a challenge with a known token is still answered
	if _, err := f.tokens.Create(t.Context(), "ada", admin.Admin, ""); err != nil {
		t.Fatal(err)
	}
	if err := f.tokens.Revoke(t.Context(), admin.Operator, ""); err != nil {
		t.Fatal(err)
	}
	f.refused(call{method: "GET", path: admin.NewChallenge(f.token).Path(), header: without}, 429, "rate_limited")
}
