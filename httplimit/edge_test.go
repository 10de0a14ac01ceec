package httplimit_test

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/storetest"
)

// An edge is a middleware in front of a handler, on real sockets, with a clock that
// tests advance.
type edge struct {
	*testing.T
	clock      *storetest.ManualClock
	decider    *weir.Decider
	middleware *httplimit.Middleware
	server     *httptest.Server
	tokens     tokenTable
}

const secret = "an HS256 secret of at least 32 bytes"

// signer signs sessions that are verified with its public key.
var signer = ed25519.NewKeyFromSeed([]byte("an Ed25519 seed, 32 bytes of it."))

// contract is the part of the contract's policy that these tests use.
var contract = map[string][]string{
	"widget-init /api/v1/widget/init":                         {"1000 per minute by ip+agent", "30000 per hour by ip"},
	"widget-leads POST /api/v1/widget/leads requires session": {"3 per minute by session or ip"},
	"wp-plugin /v1/wp/* bulk-sync requires token":             {"4 per minute by token or ip"},
	"widget-typing POST /api/v1/widget/typing":                {"60 per minute by ip"},
	"widget-satisfaction /api/v1/widget/satisf*":              {"2 per minute by ip"},
}

// limiters parses rows of "name route message requires credential" and windows.
func limiters(t testing.TB, rows map[string][]string) weir.Policy {
	t.Helper()
	var p weir.Policy
	for row, windows := range rows {
		name, rest, _ := strings.Cut(row, " ")
		rest, requires, _ := strings.Cut(rest, " requires ")
		l := weir.Limiter{Name: name, Requires: requires}
		if before, ok := strings.CutSuffix(rest, " bulk-sync"); ok {
			rest, l.Message = before, "bulk-sync"
		} else if strings.HasPrefix(name, "widget-") {
			l.Message = "widget"
		}
		route, err := weir.ParseRoute(rest)
		if err != nil {
			t.Fatal(err)
		}
		l.Routes = []weir.Route{route}
		for _, spelled := range windows {
			w, err := weir.ParseWindow(spelled)
			if err != nil {
				t.Fatal(err)
			}
			l.Windows = append(l.Windows, w)
		}
		p.Limiters = append(p.Limiters, l)
	}
	return p
}

type setting func(*edge, *httplimit.Options, *identity.Options, *weir.Policy)

// setUp serves handler behind contract, as changed by settings.
func setUp(t *testing.T, handler http.HandlerFunc, settings ...setting) *edge {
	t.Helper()
	e := &edge{T: t, clock: storetest.StartManualClock(), tokens: tokenTable{}}
	key, err := identity.NewSecretKey("test", []byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	public, err := identity.NewPublicKey("public", signer.Public())
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := identity.NewSessions(identity.SessionsOptions{Keys: []identity.SessionKey{key, public}})
	if err != nil {
		t.Fatal(err)
	}
	who := identity.Options{Sessions: sessions, Tokens: e.tokens, Now: e.clock.Now}
	o, p := httplimit.Options{}, limiters(t, contract)
	for _, s := range settings {
		s(e, &o, &who, &p)
	}
	if o.Identity, err = identity.New(who); err != nil {
		t.Fatal(err)
	}
	store, err := memstore.New(memstore.Options{Now: e.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	d, err := weir.New(p, store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e.serve(d, o, handler)
	return e
}

func (e *edge) serve(d *weir.Decider, o httplimit.Options, handler http.Handler) {
	e.Helper()
	e.decider = d
	var err error
	if e.middleware, err = httplimit.New(d, o); err != nil {
		e.Fatal(err)
	}
	e.start(e.middleware.Wrap(handler))
}

// start serves HTTP/1.1 without TLS, and HTTP/2 over TLS.
func (e *edge) start(h http.Handler) {
	e.server = httptest.NewUnstartedServer(h)
	e.server.Config.ErrorLog = nil
	e.server.Start()
	e.Cleanup(e.server.Close)
}

func (e *edge) startHTTP2(h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	e.Cleanup(s.Close)
	return s
}

// A reply is a response as it was received.
type reply struct {
	*testing.T
	status int
	lines  []string // of the header, without the status line
	body   string
}

// raw sends bytes over a new connection and reads until the server closes it.
func (e *edge) raw(request string) string {
	e.Helper()
	c, err := net.Dial("tcp", e.server.Listener.Addr().String())
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, request); err != nil {
		e.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil {
		e.Fatal(err)
	}
	return string(got)
}

// send sends one HTTP/1.1 request on a new connection, and reads the final
// response.
func (e *edge) send(target string, fields ...string) reply {
	e.Helper()
	lines := append([]string{target + " HTTP/1.1", "Host: weir.test", "Connection: close"}, fields...)
	got := e.raw(strings.Join(lines, "\r\n") + "\r\n\r\n")
	return e.parse(got)
}

func (e *edge) parse(got string) reply {
	e.Helper()
	head, body, ok := strings.Cut(got, "\r\n\r\n")
	if !ok {
		e.Fatalf("no answer: %q", got)
	}
	lines := strings.Split(head, "\r\n")
	status, err := strconv.Atoi(strings.Fields(lines[0])[1])
	if err != nil {
		e.Fatalf("status line %q", lines[0])
	}
	return reply{e.T, status, lines[1:], body}
}

// field returns the value of a field, which must occur once, with exactly this
// spelling.
func (a reply) field(name string) string {
	a.Helper()
	var values []string
	for _, line := range a.lines {
		n, v, _ := strings.Cut(line, ": ")
		if !strings.EqualFold(n, name) {
			continue
		}
		if n != name {
			a.Errorf("the wire carries %q, want the spelling %s", line, name)
		}
		values = append(values, v)
	}
	if len(values) > 1 {
		a.Errorf("%s is there %d times: %q", name, len(values), values)
	}
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// want checks the status and the contract's three fields; reset is in seconds from now.
func (a reply) want(status int, limit, remaining, reset int64) reply {
	a.Helper()
	if a.status != status {
		a.Fatalf("the status is %d, want %d: %s %s", a.status, status, a.lines, a.body)
	}
	for name, want := range map[string]int64{"X-RateLimit-Limit": limit, "X-RateLimit-Remaining": remaining, "X-RateLimit-Reset": start + reset} {
		if got := a.field(name); got != strconv.FormatInt(want, 10) {
			a.Errorf("%s is %q, want %d", name, got, want)
		}
	}
	return a
}

// wantFields checks other fields. If a value is empty, the field must be missing.
func (a reply) wantFields(pairs ...string) reply {
	a.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := a.field(pairs[i]); got != pairs[i+1] {
			a.Errorf("%s is %q, want %q", pairs[i], got, pairs[i+1])
		}
	}
	return a
}

const (
	start     = 1_800_000_000 // of the clock, in Unix seconds
	startDate = "Fri, 15 Jan 2027 08:00:00 GMT"
)

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

// session mints a visitor session, as a field line.
func (e *edge) session(id string) string {
	e.Helper()
	return "Authorization: Bearer " + mint(e, id, e.clock.Now().Add(time.Hour))
}

// signed mints a session of an hour whose signature is verified with a public key.
func (e *edge) signed(id string) string {
	e.Helper()
	return e.bearing(jwt.MapClaims{"sid": id, "exp": e.clock.Now().Add(time.Hour).Unix()})
}

// bearing returns the field with a session that has these claims.
func (e *edge) bearing(claims jwt.MapClaims) string {
	e.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims).SignedString(signer)
	if err != nil {
		e.Fatal(err)
	}
	return "Authorization: Bearer " + token
}

// forged is signed, with a signature that does not verify.
func (e *edge) forged(id string) string {
	e.Helper()
	token := e.signed(id)
	at := strings.LastIndexByte(token, '.') + 1
	return token[:at] + strings.Repeat("A", len(token)-at)
}

// guess sends forged sessions of a spent address until it has no checks left for new ones. Each is
// refused like a request without a session.
func (e *edge) guess(target string, limit, reset int64) {
	e.Helper()
	for i := range 50 {
		e.send(target, e.forged(fmt.Sprint("guess ", i))).want(429, limit, 0, reset)
	}
}

// mint signs a visitor session's JWT.
func mint(t testing.TB, id string, expires time.Time) string {
	t.Helper()
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sid": id, "exp": expires.Unix()}).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

type tokenTable map[string]identity.StoredToken

func (t tokenTable) Lookup(id string) (identity.StoredToken, error) {
	if s, ok := t[id]; ok {
		return s, nil
	}
	return identity.StoredToken{}, identity.ErrUnknownToken
}

// token mints a workspace API token.
func (e *edge) token() string {
	e.Helper()
	token, id, hash, err := identity.NewToken(rand.Reader)
	if err != nil {
		e.Fatal(err)
	}
	e.tokens[id] = identity.StoredToken{ID: id, Hash: hash}
	return "Authorization: Bearer " + token
}

// A brokenStore fails every take.
type brokenStore struct{}

func (brokenStore) Take(context.Context, []weir.Charge, *weir.Receipt) error {
	return errors.New("connection refused")
}

// readHead reads a response's head, including the status line.
func readHead(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("after %q: %v", b.String(), err)
		}
		b.WriteString(line)
		if line == "\r\n" {
			return b.String()
		}
	}
}

func rateLimited(message string) string {
	return fmt.Sprintf(`{"error":{"code":"rate_limited","message":"%s"}}`, message)
}
