package weir

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/internal/gateway"
)

// An example is the whole edge under a policy of examples/policies, before a backend that answers
// everything with 200, with a clock that the test sets. A stage is one for the whole script of an
// example; this one has settings.
type example struct {
	*testing.T
	handler http.Handler
	now     time.Time
}

func newExample(t *testing.T, name string, settings ...func(*edge.Config)) *example {
	t.Helper()
	e := &example{T: t, now: time.Unix(1_800_000_000, 0)}
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(backend.Close)
	at, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := inProcess(t, parsed(t, readText(t, examples+"policies/"+name)), func() time.Time { return e.now })
	c.Sites = gateway.To(at)
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

func (e *example) after(d time.Duration) { e.now = e.now.Add(d) }

// Behind a proxy that is not listed all callers are one address.
func TestTheLoginExampleCountsCallersBehindAListedProxy(t *testing.T) {
	const sign = "POST /account/login"
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
