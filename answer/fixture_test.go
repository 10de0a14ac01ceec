package answer_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/storetest"
)

const (
	secret    = "an HS256 secret of at least 32 bytes"
	startDate = "Fri, 15 Jan 2027 08:00:00 GMT" // of storetest's manual clock
	reset     = "1800000060"                    // a minute later

	widgetText = "Too many widget requests for this conversation. Please slow down."
	syncText   = "Too many sync requests for this workspace token. Please slow down."
)

// contract is a part of the contract's policy, with limits that a test can reach.
var contract = map[string][]string{
	"widget-leads POST /api/v1/widget/leads requires session": {"3 per minute by session or ip"},
	"widget-typing POST /api/v1/widget/typing":                {"60 per minute by ip"},
	"widget-satisfaction POST /api/v1/widget/satisfaction":    {"2 per minute by ip"},
	"wp-plugin /v1/wp/* requires token":                       {"4 per minute by token or ip"},
}

// messages are those that the contract's policy declares, by the limiter.
var messages = map[string]string{
	"widget-leads": "widget", "widget-typing": "widget", "widget-satisfaction": "widget", "wp-plugin": "bulk-sync",
}

// limiters reads rows of "name route requires credential" and windows.
func limiters(t testing.TB, rows map[string][]string) weir.Policy {
	t.Helper()
	var p weir.Policy
	for row, windows := range rows {
		row, requires, _ := strings.Cut(row, " requires ")
		name, spelled, _ := strings.Cut(row, " ")
		route, err := weir.ParseRoute(spelled)
		if err != nil {
			t.Fatal(err)
		}
		l := weir.Limiter{Name: name, Requires: requires, Routes: []weir.Route{route}, Message: messages[name]}
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

// A request is an identity.Request without net/http.
type request struct {
	peer   string
	header map[string][]string
	cert   *identity.Certificate
}

func (r *request) Peer() netip.Addr            { return identity.ParsePeer(r.peer) }
func (r *request) Header(name string) []string { return r.header[name] }
func (r *request) Host() string                { return "" }
func (r *request) RawQuery() string            { return "" }
func (r *request) Body(int) []byte             { return nil }

func (r *request) Certificate() *identity.Certificate { return r.cert }

// from returns a request from an address, with one field unless name is empty.
func from(address, name string, lines ...string) *request {
	r := &request{peer: address + ":50123"}
	if name != "" {
		r.header = map[string][]string{name: lines}
	}
	return r
}

// A door asks a Judge.
type door struct {
	testing.TB
	judge  *answer.Judge
	who    *identity.Resolver
	clock  *storetest.ManualClock
	tokens tokenTable
}

type tokenTable map[string]identity.StoredToken

func (t tokenTable) Lookup(id string) (identity.StoredToken, error) {
	if s, ok := t[id]; ok {
		return s, nil
	}
	return identity.StoredToken{}, identity.ErrUnknownToken
}

// open returns a door whose judge enforces p with an embedded store.
func open(t testing.TB, p weir.Policy, o answer.Options) *door {
	t.Helper()
	d := &door{TB: t, clock: storetest.StartManualClock(), tokens: tokenTable{}}
	key, err := identity.NewSecretKey("test", []byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := identity.NewSessions(identity.SessionsOptions{Keys: []identity.SessionKey{key}})
	if err != nil {
		t.Fatal(err)
	}
	if d.who = o.Identity; d.who == nil {
		d.who, err = identity.New(identity.Options{Sessions: sessions, Tokens: d.tokens, Now: d.clock.Now})
		if err != nil {
			t.Fatal(err)
		}
	}
	o.Identity = d.who
	if d.judge, err = answer.New(d.decider(p), o); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *door) decider(p weir.Policy) *weir.Decider {
	d.Helper()
	decider, err := weir.New(p, d.store(), weir.Options{})
	if err != nil {
		d.Fatal(err)
	}
	return decider
}

func (d *door) store() weir.Store {
	d.Helper()
	store, err := memstore.New(memstore.Options{Now: d.clock.Now})
	if err != nil {
		d.Fatal(err)
	}
	return store
}

// ask sends q for a request, and returns the answer with its fields.
func (d *door) ask(r *request, q answer.Question) (*answer.Answer, map[string]string) {
	d.Helper()
	a := new(answer.Answer)
	d.askInto(r, q, a)
	return a, maps.Collect(a.Fields())
}

func (d *door) askInto(r *request, q answer.Question, a *answer.Answer) {
	d.Helper()
	q.Caller = new(identity.Caller)
	d.who.Start(q.Caller, r)
	if err := d.judge.Answer(context.Background(), &q, a); err != nil {
		d.Fatal(err)
	}
}

// post is the question for a POST to a path of the widget surface.
func post(path string) answer.Question {
	return answer.Question{Method: "POST", Path: "/api/v1/widget/" + path}
}

func (d *door) wantFields(got map[string]string, pairs ...string) {
	d.Helper()
	if len(got) != len(pairs)/2 {
		d.Errorf("the fields are %q, want %q", got, pairs)
	}
	for i := 0; i < len(pairs); i += 2 {
		if got[pairs[i]] != pairs[i+1] {
			d.Errorf("%s is %q, want %q", pairs[i], got[pairs[i]], pairs[i+1])
		}
	}
}

// session returns the value of an Authorization field with a visitor session.
func (d *door) session(id string) string {
	d.Helper()
	claims := jwt.MapClaims{"sid": id, "exp": d.clock.Now().Add(time.Hour).Unix()}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
	if err != nil {
		d.Fatal(err)
	}
	return "Bearer " + signed
}

// token returns the value of an Authorization field with a workspace API token.
func (d *door) token() string {
	d.Helper()
	token, id, hash, err := identity.NewToken(rand.Reader)
	if err != nil {
		d.Fatal(err)
	}
	d.tokens[id] = identity.StoredToken{ID: id, Hash: hash}
	return "Bearer " + token
}

// keys are the key sources of a sender that a door without HTTP knows.
type keys map[string]string

func (k keys) AppendKey(dst []byte, source string) ([]byte, bool) {
	value, ok := k[source]
	return append(dst, value...), ok
}

// brokenStore is a store that does not answer.
type brokenStore struct{}

func (brokenStore) Take(context.Context, []weir.Charge, *weir.Receipt) error {
	return errors.New("connection refused")
}

func rateLimited(message string) string {
	return fmt.Sprintf(`{"error":{"code":"rate_limited","message":"%s"}}`, message)
}
