package weir

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/internal/gateway"
)

// The policies of examples/policies do what their comments say. Each test goes through the comment
// of one file, sentence by sentence.

// An example is the whole edge under a policy of examples/policies, before a backend that answers
// everything with 200, with two API tokens and a clock that the test sets.
type example struct {
	*testing.T
	handler http.Handler
	now     time.Time
	reached atomic.Int64 // requests that the backend got
	tokens  [2]string
}

func newExample(t *testing.T, name string, settings ...func(*edge.Config)) *example {
	t.Helper()
	e := &example{T: t, now: time.Unix(1_800_000_000, 0)}
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { e.reached.Add(1) }))
	t.Cleanup(backend.Close)
	at, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := inProcess(t, parsed(t, readText(t, examples+"policies/"+name)), func() time.Time { return e.now })
	c.Sites, c.TokenFile = gateway.To(at), filepath.Join(t.TempDir(), "tokens")
	var lines string
	for i := range e.tokens {
		token, id, hash, err := identity.NewToken(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		e.tokens[i] = token
		lines += fmt.Sprintf("%s %x workspace=shop\n", id, hash)
	}
	if err := os.WriteFile(c.TokenFile, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, set := range settings {
		set(&c)
	}
	e.handler = openEdge(t, c).Handler()
	return e
}

// send sends "METHOD /path" from an address, with an API token if there is one, and with fields.
func (e *example) send(from, target, token string, fields ...string) reply {
	e.Helper()
	method, path, _ := strings.Cut(target, " ")
	r := httptest.NewRequest(method, path, http.NoBody)
	r.RemoteAddr = from + ":4711"
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	e.handler.ServeHTTP(w, r)
	answer := reply{status: w.Code, body: w.Body.String()}
	for name, values := range w.Result().Header {
		for _, value := range values {
			answer.fields = append(answer.fields, [2]string{name, value})
		}
	}
	return answer
}

// want checks a status, and the limit and rest of the window that binds.
func (e *example) want(r reply, status int, limit, remaining int64) {
	e.Helper()
	if r.status != status || r.integer(e.T, "X-RateLimit-Limit") != limit || r.integer(e.T, "X-RateLimit-Remaining") != remaining {
		e.Errorf("status %d, want %d with %d of %d remaining: %v %s", r.status, status, remaining, limit, r.fields, r.body)
	}
}

// times sends a request n times, which must all be admitted.
func (e *example) times(n int, from, target, token string) {
	e.Helper()
	for i := range n {
		if r := e.send(from, target, token); r.status != http.StatusOK {
			e.Fatalf("request %d of %d is answered %d %s", i+1, n, r.status, r.body)
		}
	}
}

func (e *example) after(d time.Duration) { e.now = e.now.Add(d) }

// Two addresses.
const (
	here  = "203.0.113.7"
	there = "198.51.100.9"
)

func TestThePublicAPIExampleDoesWhatItSays(t *testing.T) {
	const read, write, search = "GET /api/things", "POST /api/things", "GET /api/search"
	e := newExample(t, "public-api.yaml")
	one, other := e.tokens[0], e.tokens[1]

	// Everybody may read. An invalid token is counted by the address.
	e.want(e.send(here, read, ""), 200, 20, 19)
	e.want(e.send(here, read, "nonsense"), 200, 20, 18)
	e.want(e.send(here, "HEAD /api/things", ""), 200, 20, 17)
	e.times(17, here, read, "")
	e.want(e.send(here, read, ""), 429, 20, 0)

	// A token has a budget of its own, from any address, which others cannot spend.
	e.want(e.send(here, read, one), 200, 20, 19)
	e.want(e.send(there, read, one), 200, 20, 18)
	e.want(e.send(there, read, other), 200, 20, 19)

	// Writing needs a token, and has a budget beside that of reading.
	before := e.reached.Load()
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		if r := e.send(there, method+" /api/things", ""); r.status != 401 || r.code(t) != "unauthenticated" {
			t.Errorf("%s without a token is answered %d %s", method, r.status, r.body)
		}
	}
	e.want(e.send(there, write, "nonsense"), 401, 60, 55)
	if e.reached.Load() != before {
		t.Error("the backend got a write without a token")
	}
	e.times(60, here, write, one)
	e.want(e.send(here, write, one), 429, 60, 0)
	e.want(e.send(here, write, other), 200, 60, 59)
	e.want(e.send(here, read, one), 200, 20, 17)

	// Searching is more specific than reading, and only as far as the method goes.
	e.want(e.send(there, search, ""), 200, 30, 29)
	e.want(e.send(there, search, one), 200, 30, 29)
	e.want(e.send(there, "POST /api/search", ""), 401, 60, 54)

	// Bursts are smoothed, and a minute has 600 reads.
	e.after(time.Minute)
	for range 30 {
		e.times(20, there, read, other)
		e.after(time.Second)
	}
	e.want(e.send(there, read, other), 429, 600, 0)
}

func TestTheLoginExampleDoesWhatItSays(t *testing.T) {
	const sign = "POST /account/login"
	e := newExample(t, "login.yaml")

	// An address has ten tries a minute. A refused one spends nothing: the next is at the reset.
	e.times(10, here, sign, "")
	for range 18 {
		e.want(e.send(here, sign, ""), 429, 10, 0)
	}
	e.want(e.send(there, sign, ""), 200, 10, 9)
	e.after(time.Minute - time.Nanosecond)
	e.want(e.send(here, sign, ""), 429, 10, 0)
	e.after(time.Nanosecond)

	// Over an hour there are fewer: six times ten.
	for range 5 {
		e.times(10, here, sign, "")
		e.after(time.Minute)
	}
	e.want(e.send(here, sign, ""), 429, 60, 0)
	e.after(54*time.Minute - time.Nanosecond)
	e.want(e.send(here, sign, ""), 429, 60, 0)
	e.after(time.Nanosecond)
	e.want(e.send(here, sign, ""), 200, 10, 9)

	// An address that keeps trying is refused for 15 minutes from the 20th refusal, and its other
	// requests are not.
	e.times(9, here, sign, "")
	for range 100 {
		e.want(e.send(here, sign, ""), 429, 10, 0)
	}
	e.after(15*time.Minute - time.Nanosecond)
	e.want(e.send(here, sign, ""), 429, 10, 0)
	e.want(e.send(there, sign, ""), 200, 10, 9)
	e.after(time.Nanosecond)
	e.want(e.send(here, sign, ""), 200, 10, 9)

	// The other endpoints.
	e.want(e.send(here, "POST /account/password/forgot", ""), 200, 3, 2)
	e.want(e.send(here, "POST /account/password/reset", ""), 200, 3, 1)
	e.want(e.send(here, "POST /account/register", ""), 200, 20, 19)
	e.want(e.send(here, "GET /account/login", ""), 200, 300, 299)
	e.want(e.send(here, "GET /account", ""), 200, 300, 298)

	// Behind a proxy that is not listed all callers are one address.
	forwarded := []string{"X-Forwarded-For", there}
	unlisted := newExample(t, "login.yaml")
	unlisted.want(unlisted.send("10.1.2.3", sign, ""), 200, 10, 9)
	unlisted.want(unlisted.send("10.1.2.3", sign, "", forwarded...), 200, 10, 8)
	listed := newExample(t, "login.yaml", func(c *edge.Config) {
		c.Callers.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	})
	listed.want(listed.send("10.1.2.3", sign, ""), 200, 10, 9)
	listed.want(listed.send("10.1.2.3", sign, "", forwarded...), 200, 10, 9)
}

// While the store does not answer, what costs money or sends mail is refused, and the rest is
// counted here.
func TestTheExamplesRefuseWhatCostsMoneyWithoutAStore(t *testing.T) {
	for _, test := range []struct{ policy, refused, served string }{
		{"llm-api.yaml", "/v1/completions", "/v1/embeddings"},
		{"login.yaml", "/account/password/forgot", "/account/login"},
	} {
		s := serveWeir(t, "--policy", examplePolicy(t, test.policy), "--upstream", accepting(t), "--store", "redis://127.0.0.1:1")
		if r := curl(t, s.url+test.refused, "-X", "POST"); r.status != 503 || r.code(t) != "store_unavailable" {
			t.Errorf("%s is answered %d %s", test.refused, r.status, r.body)
		}
		if r := curl(t, s.url+test.served, "-X", "POST"); r.status != 201 {
			t.Errorf("%s is answered %d %s", test.served, r.status, r.body)
		}
		s.end(t)
	}
}

// examplePolicy returns the absolute path of an example, since servers have directories of their
// own.
func examplePolicy(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(examples + "policies/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
