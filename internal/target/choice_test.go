package target

import (
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

func testDecider(t testing.TB) *weir.Decider {
	t.Helper()
	limiter := func(name string, routes ...weir.Route) weir.Limiter {
		return weir.Limiter{Name: name, Routes: routes, Windows: []weir.Window{{Limit: 1, Per: time.Minute, Key: weir.Key{{"ip"}}}}}
	}
	slots := limiter("slots", weir.Route{Path: "/slots"})
	slots.InFlight = weir.InFlight{Limit: 1, Key: weir.Key{{"ip"}, {"query:tenant"}}}
	return deciderOf(t, weir.Policy{Limiters: []weir.Limiter{
		slots,
		limiter("widget-init", weir.Route{Method: "POST", Path: "/api/v1/widget/init"}),
		limiter("widget-other", weir.Route{Path: "/api/v1/widget/", Prefix: true}),
		limiter("wp-plugin", weir.Route{Path: "/v1/wp/", Prefix: true}),
		limiter("all", weir.Route{Path: "/", Prefix: true}),
	}})
}

func deciderOf(t testing.TB, p weir.Policy) *weir.Decider {
	t.Helper()
	store, err := memstore.New(memstore.Options{Memory: memstore.MinMemory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	d, err := weir.New(p, store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTheChoiceIsMadeInOneOrder(t *testing.T) {
	d := testDecider(t)
	for _, c := range []struct {
		method, target string
		purpose        Purpose
		kind           Kind
		surface        Surface
		limiter        string
	}{
		{"POST", "/api/v1/widget/init", Ordinary, Plain, Widget, "widget-init"},
		{"POST", "/api/v1/widget/init?agent_id=a", Ordinary, Plain, Widget, "widget-init"},
		{"POST", "//api/./v1/widget/%69nit", Ordinary, Plain, Widget, "widget-init"},
		{"GET", "http://example.com/v1/wp/status", Ordinary, Plain, Sync, "wp-plugin"},
		{"OPTIONS", "/v1/wp/status", Ordinary, Plain, Sync, "wp-plugin"},
		{"OPTIONS", "/v1/wp/status", CORSPreflight, Preflight, Sync, "widget-other"},
		{"OPTIONS", "/else", CORSPreflight, Plain, NoSurface, "all"},
		{"OPTIONS", "*", Ordinary, Asterisk, NoSurface, ""},
		{"GET", "*", Ordinary, Unreadable, NoSurface, "all"},
		{"GET", "/healthz", Ordinary, Health, NoSurface, ""},
		{"POST", "/readyz", Ordinary, Health, NoSurface, ""},
		{"GET", "/healthz/", Ordinary, Plain, NoSurface, "all"},
		{"BREW", "/api/v1/widget/init", Ordinary, UnknownMethod, Widget, "widget-other"},
		{"BREW", "/healthz", Ordinary, Health, NoSurface, ""},
		{"POST", "/api/v1/widget%2finit", Ordinary, Unreadable, Widget, "all"},
		{"POST", "/api/v1/widget/init?a#b", Ordinary, Unreadable, Widget, "all"},
		{"GET", "mailto:me", Ordinary, Unreadable, NoSurface, "all"},
		{"GET", "/slots?tenant=a", Ordinary, Plain, NoSurface, "slots"},
		{"GET", "/slots?tenant=a&tenant=b", Ordinary, AmbiguousQuery, NoSurface, "all"},
		{"CONNECT", "example.com:443", Ordinary, UnknownMethod, NoSurface, "all"},
	} {
		u, err := Parse(c.method, c.target)
		if err != nil {
			t.Fatal(err)
		}
		r := Request{Method: c.method, Purpose: c.purpose, Query: u.RawQuery}
		r.Read(u)
		choice := Choice{Kind: 99, Surface: 99}
		Choose(d, &r, &choice)
		name := ""
		if l := choice.Match.Limiter(); l != nil {
			name = l.Name
		}
		if choice.Kind != c.kind || choice.Surface != c.surface || name != c.limiter {
			t.Errorf("%s %s: kind %d, surface %d, limiter %q, want %d, %d, %q", c.method, c.target, choice.Kind, choice.Surface, name, c.kind, c.surface, c.limiter)
		}
	}
}

// A segment of nothing but parameters or blanks is empty for some backends, and a parameter for
// others. Where that makes a difference, the path is refused.
func TestASegmentWithoutANameIsReadInBothWays(t *testing.T) {
	limiter := func(name, key string, route weir.Route) weir.Limiter {
		return weir.Limiter{Name: name, Routes: []weir.Route{route}, Chosen: true,
			Windows: []weir.Window{{Limit: 1, Per: time.Minute, Key: weir.Key{{key}}}}}
	}
	d := deciderOf(t, weir.Policy{Limiters: []weir.Limiter{
		limiter("all", "ip", weir.Route{Path: "/", Prefix: true}),
		limiter("login", "ip", weir.Route{Method: "POST", Path: "/login/{user}"}),
		limiter("search", "ip", weir.Route{Method: "GET", Path: "/t/{tenant}/search"}),
		limiter("under", "path:user", weir.Route{Path: "/u/{user}/", Prefix: true}),
	}})
	for _, c := range []struct {
		method, target string
		kind           Kind
		limiter        string
	}{
		{"POST", "/login/bob", Plain, "login"},
		{"POST", "/login/bob;x", Plain, "login"},
		{"POST", "/login/%20bob", Plain, "login"},
		{"POST", "/login/%20", Unreadable, "all"},
		{"POST", "/login/;x", Unreadable, "all"},
		{"POST", "/login/%3Bx", Unreadable, "all"},
		{"POST", "/login/%3Fx", Unreadable, "all"},
		{"POST", "/login/%23x", Unreadable, "all"},
		{"GET", "/login/;x", Plain, "all"},
		{"GET", "/t/;z/search", Unreadable, "all"},
		{"GET", "/;jsessionid=1", Plain, "all"},
		{"GET", "/u/ann/;x", Plain, "under"},
		{"GET", "/u/;x/ann", Unreadable, "all"},
		{"GET", "/u/ann/%20/;x", Plain, "under"},
		{"POST", "/login/", Plain, "all"},
	} {
		u, err := Parse(c.method, c.target)
		if err != nil {
			t.Fatal(err)
		}
		r := Request{Method: c.method}
		r.Read(u)
		var choice Choice
		if Choose(d, &r, &choice); choice.Kind != c.kind || choice.Match.Limiter().Name != c.limiter {
			t.Errorf("%s %s: kind %d, limiter %q, want %d, %q", c.method, c.target, choice.Kind, choice.Match.Limiter().Name, c.kind, c.limiter)
		}
	}
}

// It is charged to the limiter that covers one of its readings, if none covers all.
func TestASegmentWithoutANameIsCounted(t *testing.T) {
	d := deciderOf(t, weir.Policy{Limiters: []weir.Limiter{{
		Name: "login", Routes: []weir.Route{{Method: "POST", Path: "/login/{user}"}},
		Windows: []weir.Window{{Limit: 1, Per: time.Minute, Key: weir.Key{{"ip"}}}},
	}}})
	r := Request{Method: "POST", Path: "/login/;x"}
	var choice Choice
	if Choose(d, &r, &choice); choice.Kind != Unreadable || choice.Match.Limiter() == nil {
		t.Errorf("kind %d, limiter %v", choice.Kind, choice.Match.Limiter())
	}
}

func TestATargetThatIsNoneIsNotParsed(t *testing.T) {
	for _, s := range []string{"", "a", "/%zz", "/a\x00", "http://[", "*?x"} {
		if _, err := Parse("GET", s); !errors.Is(err, ErrNoTarget) {
			t.Errorf("Parse(%q): %v", s, err)
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	d := testDecider(b)
	u, err := Parse("POST", "/api/v1/widget/init")
	if err != nil {
		b.Fatal(err)
	}
	var c Choice
	b.ReportAllocs()
	for b.Loop() {
		r := Request{Method: "POST"}
		r.Read(u)
		Choose(d, &r, &c)
	}
	if c.Match.Limiter() == nil {
		b.Fatal("nothing covers it")
	}
}

// BenchmarkMatch measures the part of Choose that matches routes.
func BenchmarkMatch(b *testing.B) {
	d := testDecider(b)
	for b.Loop() {
		d.Match("POST", "", "/api/v1/widget/init")
	}
}
