package admin_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/internal/logtest"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/policyfile"
)

// A fixture is a Server with a clock that the test sets.
type fixture struct {
	*testing.T
	admin   *admin.Server
	decider *weir.Decider
	policy  *live.Policy
	tokens  *admin.Tokens
	token   string                // the operator's token
	roles   map[admin.Role]string // tokens by role; see as
	dir     string
	log     logtest.Buffer

	clock sync.Mutex
	at    time.Time
}

const start = 1_800_000_000

func (f *fixture) now() time.Time {
	f.clock.Lock()
	defer f.clock.Unlock()
	return f.at
}

func (f *fixture) after(d time.Duration) {
	f.clock.Lock()
	defer f.clock.Unlock()
	f.at = f.at.Add(d)
}

const policyText = `# as an operator wrote it
limiters:
  - name: leads
    routes: [POST /leads]
    windows: [5 per minute by session or ip, 20 per hour by ip]
  - name: sync
    routes: [/sync*]
    windows: [3 per minute by token or ip]
`

// newFixture returns a Server with its own directory. change, if not nil, changes
// its options.
func newFixture(t *testing.T, change func(*admin.Options)) *fixture {
	t.Helper()
	f := &fixture{T: t, dir: t.TempDir(), at: time.Unix(start, 0)}
	document, err := live.Parse(policyfile.Reader{}, live.Stream, "weir.yaml", []byte(policyText))
	if err != nil {
		t.Fatal(err)
	}
	store, err := memstore.New(memstore.Options{Memory: memstore.MinMemory, Now: f.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if f.decider, err = weir.New(document.Policy, store, weir.Options{Sources: weir.Sources()}); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&f.log, nil))
	audit, err := admin.OpenAudit(t.Context(), f.dir, f.now)
	if err != nil {
		t.Fatal(err)
	}
	if f.policy, err = live.New(document, f.decider.Swap, live.Options{Now: f.now, Log: log, Before: audit.PolicyChange}); err != nil {
		t.Fatal(err)
	}
	f.tokens = admin.OpenTokens(f.dir, admin.TokensOptions{Now: f.now, Audit: audit})
	if f.token, err = f.tokens.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := admin.Options{Decider: f.decider, Policy: f.policy, Tokens: f.tokens, Audit: audit, Now: f.now, Log: log}
	if change != nil {
		change(&o)
	}
	if f.admin, err = admin.New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.admin.Close() })
	return f
}

// A call is a request to the Server.
type call struct {
	method, path, body string
	header             map[string]string // an empty value removes the field
	host, from         string
}

// ask sends a request with the operator's token.
func (f *fixture) ask(c call) *httptest.ResponseRecorder {
	f.Helper()
	r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
	r.Host, r.RemoteAddr = "127.0.0.1:8081", "127.0.0.1:40000"
	if c.host != "" {
		r.Host = c.host
	}
	if c.from != "" {
		r.RemoteAddr = c.from
	}
	r.Header.Set("Authorization", "Bearer "+f.token)
	for name, value := range c.header {
		r.Header.Del(name)
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	w := httptest.NewRecorder()
	f.admin.Handler().ServeHTTP(w, r)
	h := w.Result().Header
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"} {
		if h.Get(name) != want {
			f.Errorf("%s %s: %s is %q, want %q", c.method, c.path, name, h.Get(name), want)
		}
	}
	if !strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none';") || len(h.Values("Set-Cookie")) > 0 {
		f.Errorf("%s %s: %v", c.method, c.path, h)
	}
	return w
}

// refused checks that the answer is an error with that status and code.
func (f *fixture) refused(c call, status int, code string) *httptest.ResponseRecorder {
	f.Helper()
	w := f.ask(c)
	var got struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); w.Code != status || err != nil || got.Error.Code != code || got.Error.Message == "" {
		f.Errorf("%s %.60s %v: %d %s, want %d %s", c.method, c.path, c.header, w.Code, w.Body, status, code)
	}
	return w
}

// answered checks that the answer is 200, and decodes it into v.
func (f *fixture) answered(c call, v any) *httptest.ResponseRecorder {
	f.Helper()
	w := f.ask(c)
	if w.Code != http.StatusOK {
		f.Fatalf("%s %s: %d %s", c.method, c.path, w.Code, w.Body)
	}
	if v != nil {
		if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
			f.Fatalf("%s %s: %v: %s", c.method, c.path, err, w.Body)
		}
	}
	return w
}

func (f *fixture) path(name string) string { return filepath.Join(f.dir, name) }

// An endless is an endless body that counts the bytes read.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	for i := range p {
		p[i] = '#'
	}
	return len(p), nil
}

var _ io.Reader = (*endless)(nil)
