package verify

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

// Two keys that need escapes in a query and in nothing else.
const (
	keyA = "sk_live_51H8x/+=~!$4711"
	keyB = "sk_live_9fQ2v/+=~!$0815"
)

// keyed is a server that limits by policy and knows keyA and keyB.
func keyed(t *testing.T, policy string, places ...identity.Place) http.Handler {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	lines := fmt.Sprintf("a %x\nb %x\n", sha256.Sum256([]byte(keyA)), sha256.Sum256([]byte(keyB)))
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := identity.OpenTokenFile(path, identity.TokenFileOptions{Failed: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	return identified(t, policy, identity.Options{Tokens: file, TokenFrom: places})
}

// identified is a server that limits by policy.
func identified(t *testing.T, policy string, o identity.Options) http.Handler {
	t.Helper()
	m, err := httplimit.New(decider(t, policyOf(t, policy)), httplimit.Options{Identity: resolver(t, o)})
	if err != nil {
		t.Fatal(err)
	}
	return m.Wrap(http.HandlerFunc(fine))
}

func placesOf(t *testing.T, texts ...string) (all []identity.Place) {
	t.Helper()
	for _, text := range texts {
		p, err := identity.ParsePlace(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func byKey(o *Options) { o.Tokens = []string{keyA, keyB} }

const byToken = "limiters:\n  - {name: things, routes: [/things*], windows: ['20 per minute by token or ip'], requires: token}\n"

// API keys are sent where requests have them, and every clause about credentials is tested there.
func TestAnAPIKeyIsSentWhereItBelongs(t *testing.T) {
	for _, where := range [][]string{{"bearer"}, {"basic"}, {"header:X-Api-Key"}, {"query:api_key"}, {"header:X-Auth", "bearer", "query:key"}} {
		places := placesOf(t, where...)
		r := verifiedAgainst(t, byToken, keyed(t, byToken, places...), func(o *Options) { byKey(o); o.TokenPlaces = places })
		if r.Broken() {
			t.Errorf("%v: a clause is broken:\n%s", where, table(r))
		}
		for _, clause := range []string{"separate", "shared", "unverified", "admitted"} {
			if got := verdictOf(t, r, clause); got.Verdict != Kept {
				t.Errorf("%v: %s is %s: %s", where, clause, got.Verdict, got.Detail)
			}
		}
		if text, err := json.Marshal(r); err != nil || strings.Contains(string(text), keyA[8:15]) {
			t.Errorf("%v: %v: the report has a key:\n%s", where, err, text)
		}
	}
}

// A key in a place that the deployment does not read does not verify there.
func TestAKeyInAPlaceThatIsNotReadDoesNotVerify(t *testing.T) {
	_, err := runAgainst(t, byToken, keyed(t, byToken), func(o *Options) { byKey(o); o.TokenPlaces = placesOf(t, "header:X-Api-Key") })
	if !isCredentialError(err) {
		t.Errorf("it ended with %v", err)
	}
}

// A server that counts the key in each place apart is found, and no report shows the key.
func TestABudgetForEachPlaceIsFound(t *testing.T) {
	places := placesOf(t, "header:X-Api-Key", "basic", "query:key")
	policy := "limiters:\n  - {name: things, routes: [/things*], windows: ['20 per minute by token or ip+header:X-Place'], requires: token}\n"
	server := keyed(t, policy, places...)
	r := verifiedAgainst(t, byToken, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("X-Place", "any")
		if r.Header.Get("X-Api-Key") == "" {
			r.Header.Set("X-Place", "elsewhere")
		}
		server.ServeHTTP(w, r)
	}), func(o *Options) { byKey(o); o.TokenPlaces = places })
	if got := verdictOf(t, r, "shared"); got.Verdict != Broken {
		t.Errorf("shared is %s: %s\n%s", got.Verdict, got.Detail, table(r))
	}
	text, err := json.Marshal(r)
	if err != nil || slices.ContainsFunc([]string{keyA[8:15], basic(keyA, "")[10:30]}, func(part string) bool { return strings.Contains(string(text), part) }) {
		t.Errorf("%v: the report has a key:\n%s", err, text)
	}
}

// signed returns a session with claims.
func signed(t *testing.T, claims jwt.MapClaims) string {
	t.Helper()
	claims["exp"] = time.Now().Add(48 * time.Hour).Unix()
	s, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(testSecret))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func knowing(t *testing.T, policy string) http.Handler {
	t.Helper()
	key, err := identity.NewSecretKey("", []byte(testSecret))
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := identity.NewSessions(identity.SessionsOptions{Keys: []identity.SessionKey{key}})
	if err != nil {
		t.Fatal(err)
	}
	return identified(t, policy, identity.Options{Sessions: sessions})
}

const byOrg = "limiters:\n  - {name: things, routes: [/things*], windows: ['20 per minute by claim:org.id or ip']}\n"

// orgs are two sessions of one organisation, and one of another.
func orgs(t *testing.T) []string {
	session := func(id, org string) string {
		return signed(t, jwt.MapClaims{"sid": id, "org": map[string]any{"id": org}})
	}
	return []string{session("one", "acme"), session("two", "acme"), session("three", "globex")}
}

// A claim is read from the sessions that are given: two that have the same value share a budget,
// and two with different ones do not.
func TestALimiterByAClaimKeepsEveryClause(t *testing.T) {
	for _, window := range []string{"claim:org.id or ip", "ip+claim:org.id"} {
		policy := strings.Replace(byOrg, "claim:org.id or ip", window, 1)
		r := verifiedAgainst(t, policy, knowing(t, policy), func(o *Options) { o.Sessions = orgs(t) })
		if r.Broken() {
			t.Errorf("by %s: a clause is broken:\n%s", window, table(r))
		}
		for _, clause := range []string{"separate", "shared", "unverified", "admitted", "remaining"} {
			if got := verdictOf(t, r, clause); got.Verdict != Kept {
				t.Errorf("by %s: %s is %s: %s", window, clause, got.Verdict, got.Detail)
			}
		}
	}
}

func TestASecondClaimIsAskedFor(t *testing.T) {
	r := verifiedAgainst(t, byOrg, knowing(t, byOrg), func(o *Options) { o.Sessions = orgs(t)[:2] })
	if got := verdictOf(t, r, "separate"); got.Verdict != Untested || got.Reason != NeedsInput || !strings.Contains(got.Detail, "claim:org.id") {
		t.Errorf("separate is %s: %s", got.Verdict, got.Detail)
	}
}

// Servers that count by the session where the policy counts by the claim, or by nothing of it.
func TestWrongBudgetsOfAClaimAreFound(t *testing.T) {
	bySession := strings.Replace(byOrg, "claim:org.id", "session", 1)
	r := verifiedAgainst(t, byOrg, knowing(t, bySession), func(o *Options) { o.Sessions = orgs(t) })
	if got := verdictOf(t, r, "shared"); got.Verdict != Broken {
		t.Errorf("each session has a budget, and shared is %s: %s\n%s", got.Verdict, got.Detail, table(r))
	}
	byIssuer := strings.Replace(byOrg, "claim:org.id", "claim:exp", 1) // all have the same
	r = verifiedAgainst(t, byOrg, knowing(t, byIssuer), func(o *Options) { o.Sessions = orgs(t) })
	if got := verdictOf(t, r, "separate"); got.Verdict != Broken {
		t.Errorf("all sessions share a budget, and separate is %s: %s\n%s", got.Verdict, got.Detail, table(r))
	}
}
