package weir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir/e2e/redistest"
)

const plansPolicy = `limiters:
  - name: by-claim
    routes: [/claim*]
    windows: [3 per hour by session or ip]
    plans: {by: claim:org.plan, gold: 6 per hour, trial: 1 per hour}
  - name: by-token
    routes: [/token*]
    windows: [2 per hour by token or ip]
    plans: {by: token, gold: 5 per hour}
  - name: by-field
    routes: [/field*]
    windows: [2 per hour by ip]
    plans: {by: header:X-Plan, gold: 5 per hour}
`

// A subscription is a server whose callers have plans, and a key that signs their sessions.
type subscription struct {
	*server
	key []byte
}

func serveSubscription(t *testing.T, args ...string) *subscription {
	t.Helper()
	key := []byte("the secret of a service that sells plans")
	path := filepath.Join(t.TempDir(), "session.key")
	if err := os.WriteFile(path, key, 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--upstream", accepting(t), "--policy", policyFile(t, plansPolicy), "--jwt-key", path, "--tokens"}, args...)
	return &subscription{serveWeir(t, args...), key}
}

// bearer returns a field with a session of a plan, which a key signs.
func (s *subscription) bearer(t *testing.T, key []byte, id, plan string) string {
	t.Helper()
	claims := jwt.MapClaims{"sid": id, "org": map[string]string{"plan": plan}, "exp": time.Now().Add(time.Hour).Unix()}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return "Authorization: Bearer " + signed
}

// want sends a request and compares status, limit and what remains.
func (s *subscription) want(t *testing.T, path string, status int, limit, remaining int64, fields ...string) reply {
	t.Helper()
	args := []string{s.url + path}
	for _, field := range fields {
		args = append(args, "-H", field)
	}
	r := curl(t, args...)
	if r.status != status || r.integer(t, "X-RateLimit-Limit") != limit || r.integer(t, "X-RateLimit-Remaining") != remaining {
		t.Errorf("%s with %.40q: %d %v; want %d, %d of %d", path, fields, r.status, r.fields, status, remaining, limit)
	}
	return r
}

func TestAClaimsPlanSetsTheLimitAndKeepsTheCount(t *testing.T) {
	for name, store := range map[string]func() []string{
		"in memory": func() []string { return nil },
		"in Redis":  func() []string { return []string{"--store", redistest.Start(t).URL(), patient} },
	} {
		t.Run(name, func(t *testing.T) {
			s := serveSubscription(t, store()...)
			free, gold := s.bearer(t, s.key, "ada", "free"), s.bearer(t, s.key, "ada", "gold")
			for left := int64(2); left >= 0; left-- {
				s.want(t, "/claim", 201, 3, left, free)
			}
			s.want(t, "/claim", 429, 3, 0, free)
			s.want(t, "/claim", 201, 6, 2, gold) // an upgrade: 3 are spent
			s.want(t, "/claim", 201, 6, 1, gold)
			s.want(t, "/claim", 201, 6, 0, gold)
			refused := s.want(t, "/claim", 429, 6, 0, gold)
			s.want(t, "/claim", 429, 1, 0, s.bearer(t, s.key, "ada", "trial")) // a downgrade
			s.want(t, "/claim", 201, 3, 2, s.bearer(t, s.key, "grace", "Gold"))

			denial := refused.one(t, "X-Weir-Denial")
			if explained := s.operate(t, "denial", denial); !strings.Contains(explained, "gold") || !strings.Contains(explained, "6 of 6") {
				t.Errorf("the denial:\n%s", explained)
			}
			if shown := s.operate(t, "key", "show", "--denial", denial); !strings.Contains(shown, "plan gold") {
				t.Errorf("the caller of the denial:\n%s", shown)
			}
			if shown := s.operate(t, "key", "show", "--session", "ada", "--limiter", "by-claim"); !strings.Contains(shown, "its plan is not known") {
				t.Errorf("the session:\n%s", shown)
			}
			// a session that another key signed has no plan, and no budget of its own
			s.want(t, "/claim", 201, 3, 2, s.bearer(t, []byte("a secret that the server does not know"), "eve", "gold"))
			s.want(t, "/claim", 201, 3, 1)
		})
	}
}

func TestATokensPlanIsInForceWithoutARestart(t *testing.T) {
	s := serveSubscription(t)
	token := apiToken(t, s.data, "acme")
	id := strings.Split(token, "_")[1]
	field := "Authorization: Bearer " + token
	s.want(t, "/token", 201, 2, 1, field)
	s.want(t, "/token", 201, 2, 0, field)
	s.want(t, "/token", 429, 2, 0, field)
	if _, stderr, code := weirCommand(t.Context(), t, "token", "plan", id, "gold", "--data", s.data); code != 0 {
		t.Fatalf("weir token plan: %s", stderr)
	}
	for { // a refused request spends nothing
		if r := curl(t, s.url+"/token", "-H", field); r.status == 201 {
			if left := r.integer(t, "X-RateLimit-Remaining"); left != 2 {
				t.Errorf("after the upgrade %d remain, want 2 of 5", left)
			}
			break
		}
	}
	if shown := s.operate(t, "key", "show", "--token", id, "--limiter", "by-token"); !strings.Contains(shown, "plan gold") {
		t.Errorf("the token:\n%s", shown)
	}
}

// The plan of a key that another service made is in the token file. A new version of the file
// changes the limit in mid-window, and what is spent stays spent.
func TestAPlanInTheTokenFileIsInForceWithoutARestart(t *testing.T) {
	const id = "Ada.L-1_x"
	path := filepath.Join(t.TempDir(), "keys")
	write := func(attributes ...string) {
		t.Helper()
		line := lineOfKey(t, customerKey, append([]string{"--id", id}, attributes...)...)
		if err := os.WriteFile(path+".new", []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write()
	policy := plansPolicy + "  - name: special\n    routes: [/special]\n    windows: [2 per hour by token]\n    requires: token\n" +
		"    plans: {by: token, gold: 5 per hour}\n    overrides: [9 per hour for token " + id + "]\n"
	s := &subscription{server: serveWeir(t, "--upstream", accepting(t), "--policy", policyFile(t, policy), "--token-file", path, "--token-from", "header:X-Api-Key")}
	field := "X-Api-Key: " + customerKey
	until := func(changed func(r reply) bool) reply { // a refused request spends nothing
		t.Helper()
		for {
			if r := curl(t, s.url+"/token", "-H", field); r.status != 429 || changed(r) {
				return r
			}
		}
	}
	s.want(t, "/token", 201, 2, 1, field)
	s.want(t, "/token", 201, 2, 0, field)
	s.want(t, "/token", 429, 2, 0, field)

	write("--plan", "gold", "--expires", "2999-01-31")
	r := until(func(reply) bool { return false })
	if left := r.integer(t, "X-RateLimit-Remaining"); r.status != 201 || left != 2 {
		t.Errorf("after the upgrade: %d with %d remaining, want 201 with 2 of 5", r.status, left)
	}
	shown := s.operate(t, "key", "show", "--token", id)
	for _, want := range []string{"plan gold", "an override of the policy"} {
		if strings.Count(shown, want) != 1 {
			t.Errorf("the key lacks %q:\n%s", want, shown)
		}
	}
	s.want(t, "/special", 201, 9, 8, field)
	s.want(t, "/token", 201, 5, 1, field)
	s.want(t, "/token", 201, 5, 0, field)
	s.want(t, "/token", 429, 5, 0, field)

	write("--expires", "2999-01-31")
	if r := until(func(r reply) bool { return r.integer(t, "X-RateLimit-Limit") == 2 }); r.status != 429 || r.integer(t, "X-RateLimit-Remaining") != 0 {
		t.Errorf("after the plan ended: %d %v, want 429 with 0 of 2", r.status, r.fields)
	}
	write("--plan", "gold", "--expires", "2020-01-31")
	if r := until(func(reply) bool { return false }); r.status != 201 || r.integer(t, "X-RateLimit-Limit") != 2 {
		t.Errorf("after it expired: %d %v, want 201 with 2 by address", r.status, r.fields)
	}
}

func TestAPlanInAFieldIsATrustedProxysWord(t *testing.T) {
	s := serveSubscription(t, "--trusted-proxies", "127.0.0.1")
	s.want(t, "/field", 201, 5, 4, "X-Plan: gold", "X-Forwarded-For: 203.0.113.7")
	s.want(t, "/field", 201, 2, 0, "X-Plan: gold", "X-Plan: gold", "X-Forwarded-For: 203.0.113.7")
	s.want(t, "/field", 429, 2, 0, "X-Forwarded-For: 203.0.113.7")
	s.want(t, "/field", 201, 5, 2, "x-plan: gold", "X-Forwarded-For: 203.0.113.7")

	s = serveSubscription(t, "--trusted-proxies", "10.0.0.0/8") // this test is none of those
	s.want(t, "/field", 201, 2, 1, "X-Plan: gold", "X-Forwarded-For: 10.0.0.1")
}

func TestStartUpNamesPlansThatNobodyHas(t *testing.T) {
	s := serveWeir(t, "--upstream", accepting(t), "--policy", policyFile(t, plansPolicy))
	text := s.startup(t)
	for _, want := range []string{"so nobody has a plan of by-claim; --jwt-key or --jwks gives the key", "so nobody has a plan of by-token; --tokens verifies"} {
		if !strings.Contains(text, want) {
			t.Errorf("start-up lacks %q:\n%s", want, text)
		}
	}
	s.end(t)
	if log := s.stderr.String(); !strings.Contains(log, "limiter=by-field") || !strings.Contains(log, "--trusted-proxies") {
		t.Errorf("the log has no warning of the plans of by-field:\n%s", log)
	}
}
