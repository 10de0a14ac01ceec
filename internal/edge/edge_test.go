package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/policyfile"
)

var policies = policyfile.Reader{Sources: identity.Sources(), Messages: answer.Messages()}

// twoPolicy has a limit of two requests.
const twoPolicy = "limiters:\n  - name: all\n    routes: [/*]\n    windows: [2 per minute by session or ip, 1000 per hour by agent]\n    chosen: yes\n"

// testConfig returns a server on a free port before an upstream that accepts every
// request.
func testConfig(t *testing.T, policy string) Config {
	t.Helper()
	document, err := live.Parse(policies, live.Stream, "policy", []byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	t.Cleanup(backend.Close)
	upstream, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Listen: "127.0.0.1:0", Policy: document, Reader: policies, Sites: gateway.To(upstream),
		StoreDeadline: time.Second, Data: t.TempDir(), Memory: memstore.MinMemory,
		Callers: Callers{ClientIPHeader: "X-Forwarded-For", IPv6Prefix: 64},
		Log:     slog.New(slog.DiscardHandler),
	}
}

// opened opens a server until the test ends, and returns it with its hooks.
func opened(t *testing.T, c Config) (*Server, *hooks) {
	t.Helper()
	s, h := newServer(&c), new(hooks)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.open(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	return s, h
}

// operators returns the observers' options of the admin API.
func (h *hooks) operators() (o admin.Options) {
	for _, attach := range h.admin {
		attach(&o)
	}
	return o
}

// get sends a request to the handler of a server.
func (s *Server) get(path string) *http.Response {
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Result()
}

func TestPartsAreClosedInTheReverseOrder(t *testing.T) {
	var closed strings.Builder
	var own parts
	for i := range 3 {
		own.own(func() error { fmt.Fprint(&closed, i); return fmt.Errorf("part %d", i) })
	}
	if err := own.close(); closed.String() != "210" || err == nil || err.Error() != "part 2\npart 1\npart 0" {
		t.Errorf("closed in the order %s: %v", &closed, err)
	}
	if err := own.close(); err != nil || closed.Len() != 3 {
		t.Errorf("closed again: %s, %v", &closed, err)
	}
}

// If a start fails, all it has opened is closed. The next start can use its address
// and its counts.
func TestAFailedStartClosesEverything(t *testing.T) {
	c := testConfig(t, twoPolicy)
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	c.Listen = s.Addr().String()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	bad := c
	bad.Certificates = []gateway.KeyPair{{CertFile: "nowhere.pem", KeyFile: "nowhere.key"}}
	if _, err := Open(t.Context(), bad); err == nil {
		t.Fatal("a server without its certificate is open")
	}
	s, err = Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	response, err := http.Get(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	if response.Body.Close(); response.StatusCode != http.StatusCreated {
		t.Errorf("status %d", response.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
	end()
	if err := errors.Join(<-ran, s.Close()); err != nil {
		t.Error(err)
	}
}

func TestTheRowsDescribeTheServer(t *testing.T) {
	s, _ := opened(t, testConfig(t, twoPolicy))
	var names []string
	for _, row := range s.Rows() {
		if names = append(names, row.Name); row.Text == "" {
			t.Errorf("the row %q is empty", row.Name)
		}
	}
	if got := strings.Join(names, ", "); got != "listening, policy, store, backend, engine, sessions" {
		t.Errorf("rows %s", got)
	}
}

// ":8080" is every address, also one that others reach. The row must not look like loopback alone.
func TestTheFirstRowReportsThatEveryAddressIsServed(t *testing.T) {
	for listen, want := range map[string]bool{":0": true, "127.0.0.1:0": false} {
		c := testConfig(t, twoPolicy)
		c.Listen = listen
		s, _ := opened(t, c)
		row := s.Rows()[0]
		if !strings.HasPrefix(row.Text, s.URL()) || strings.Contains(row.Text, "every address") != want {
			t.Errorf("--listen %s: %s %s", listen, row.Name, row.Text)
		}
	}
}

// Start-up names the limiters that count by a credential that no flag verifies, also by a claim.
func TestStartUpNamesTheLimitersThatCountByAnUnverifiedCredential(t *testing.T) {
	c := testConfig(t, "limiters:\n  - {name: a, routes: [/a], windows: ['2 per minute by claim:org.id or ip']}\n"+
		"  - {name: b, routes: [/b], windows: ['2 per minute by session'], requires: session}\n  - {name: c, routes: [/c], windows: [2 per minute by ip]}\n")
	if got := unverified(&c, "session"); got != "not verified: requests are counted by IP address and forwarded, although required by b, and part of a key in a; --jwt-key or --jwks gives the key" {
		t.Errorf("sessions %s", got)
	}
	for _, source := range []string{"token", "cert"} {
		if got := unverified(&c, source); got != "" {
			t.Errorf("a policy that does not use a %s: %s", source, got)
		}
	}
	for _, exception := range []string{"exempt: [token acme]", "deny: [token acme]", "overrides: [5 per minute for token acme]"} {
		c := testConfig(t, "limiters:\n  - {name: a, routes: [/*], windows: [2 per minute by ip], "+exception+"}\n")
		if got := unverified(&c, "token"); got != "not verified: requests are counted by IP address and forwarded, although named in a; --tokens verifies those of 'weir token create', --token-file others" {
			t.Errorf("%s: %s", exception, got)
		}
	}
}

// A policy that requires what nothing verifies is reported whenever it comes into force, also as a
// candidate.
func TestARequiredCredentialThatNothingVerifiesIsReported(t *testing.T) {
	const open, closed = "limiters:\n  - {name: b, routes: [/b], windows: [2 per minute by ip]}\n", "limiters:\n  - {name: b, routes: [/b], windows: [2 per minute by ip], requires: session}\n"
	const want = `level=WARN msg="limiters require a credential that is not verified: their requests are counted by IP address and forwarded"`
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(open)
	document, err := live.Load(policies, path)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	c := testConfig(t, open)
	c.Policy, c.Log = document, slog.New(slog.NewTextHandler(&text, nil))
	s, _ := opened(t, c)
	if strings.Contains(text.String(), want) {
		t.Errorf("of a policy that requires nothing: %s", text.String())
	}
	write(closed)
	s.Reload(t.Context(), "SIGHUP")
	if got := text.String(); strings.Count(got, want+` limiters=b requires=session flags="--jwt-key or --jwks gives the key"`) != 1 {
		t.Errorf("after a reload:\n%s", got)
	}
	var tried strings.Builder
	c = testConfig(t, open)
	c.Memory = CandidateShare * memstore.MinMemory
	c.Candidate, c.Log = path, slog.New(slog.NewTextHandler(&tried, nil))
	opened(t, c)
	if got := tried.String(); strings.Count(got, want) != 1 || !strings.Contains(got, "candidate="+path) {
		t.Errorf("of a candidate:\n%s", got)
	}
}

// Each credential has the flags that verify it, and the sample backend verifies two of them.
func TestWhichCredentialsAreVerified(t *testing.T) {
	site := gateway.To(&url.URL{Scheme: "http", Host: "h"})
	for _, test := range []struct {
		config Config
		want   string
	}{
		{Config{}, "session token"},
		{Config{Sites: site}, ""},
		{Config{Sites: site, Sessions: Sessions{KeyFiles: []string{"k"}}}, "session"},
		{Config{Sites: site, Sessions: Sessions{JWKS: &url.URL{}}}, "session"},
		{Config{Sites: site, Tokens: true}, "token"},
		{Config{Sites: site, TokenFile: "t"}, "token"},
		{Config{Sites: site, Clients: gateway.ClientTLS{CAFile: "ca"}}, "cert"},
	} {
		var got []string
		for _, credential := range weir.Credentials() {
			p := weir.Policy{Limiters: []weir.Limiter{{Name: "a", Requires: credential}}}
			if len(credentialWarnings(p, &test.config)) == 0 {
				got = append(got, credential)
			}
			if verifiers[credential] == "" {
				t.Errorf("no flags verify %q", credential)
			}
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%q are verified, want %q", got, test.want)
		}
	}
}
