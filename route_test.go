package weir_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
)

// deciderFor returns a Decider with one limiter for each route, named after the
// route's place.
func deciderFor(t testing.TB, routes map[string][]string) *weir.Decider {
	t.Helper()
	var p weir.Policy
	for name, specs := range routes {
		l := weir.Limiter{Name: name, Windows: windows("10 per minute by ip")}
		for _, spec := range specs {
			r, err := weir.ParseRoute(spec)
			if err != nil {
				t.Fatal(err)
			}
			l.Routes = append(l.Routes, r)
		}
		p.Limiters = append(p.Limiters, l)
	}
	return newDecider(t, p)
}

func name(m weir.Match) string {
	if m.Limiter() == nil {
		return ""
	}
	return m.Limiter().Name
}

var contractRoutes = map[string][]string{
	"widget-init":         {"POST /api/v1/widget/init"},
	"widget-session":      {"POST /api/v1/widget/messages*", "/api/v1/widget/events*", "/api/v1/widget/conversations*"},
	"widget-leads":        {"POST /api/v1/widget/leads"},
	"wp-plugin":           {"/v1/wp/*"},
	"widget-typing":       {"POST /api/v1/widget/typing"},
	"widget-satisfaction": {"POST /api/v1/widget/satisfaction"},
	"widget-coupon":       {"POST /api/v1/widget/coupon/apply"},
	"widget-other":        {"/api/v1/widget/*"},
}

// Which limiter counts each spelling of each endpoint (D8, D9, D10).
func TestEveryRequestFindsItsLimiter(t *testing.T) {
	d := deciderFor(t, contractRoutes)
	for _, test := range []struct{ method, path, want string }{
		{"POST", "/api/v1/widget/init", "widget-init"},
		{"POST", "/api/v1/widget/messages", "widget-session"},
		{"POST", "/api/v1/widget/messages/42", "widget-session"},
		{"POST", "/api/v1/widget/messages-x", "widget-session"},
		{"GET", "/api/v1/widget/messages", "widget-other"},
		{"GET", "/api/v1/widget/events", "widget-session"},
		{"DELETE", "/api/v1/widget/conversations/1/close", "widget-session"},
		{"POST", "/api/v1/widget/leads", "widget-leads"},
		{"GET", "/api/v1/widget/leads", "widget-other"},
		{"post", "/api/v1/widget/leads", "widget-other"},
		{"POST", "/api/v1/widget/lead", "widget-other"},
		{"POST", "/api/v1/widget/leadsx", "widget-other"},
		{"POST", "/api/v1/widget", "widget-other"},
		{"GET", "/api/v1/widgets", ""},
		{"GET", "/v1/wp", "wp-plugin"},
		{"GET", "/v1/wp/", "wp-plugin"},
		{"PATCH", "/v1/wp/a/b/c", "wp-plugin"},
		{"GET", "/v1/wp.json", "wp-plugin"},
		{"GET", "/v1/wp;x", "wp-plugin"},
		{"GET", "/api/v1/widget.json", "widget-other"},
		{"GET", "/v1/wpx", ""},
		{"GET", "/", ""},
		{"GET", "", ""},
		// spellings that some backend accepts as leads
		{"POST", "/api/v1/widget/leads/", "widget-leads"},
		{"POST", "/api/v1/widget/leads//", "widget-leads"},
		{"POST", "/api/v1/widget/Leads", "widget-leads"},
		{"POST", "/API/V1/WIDGET/LEADS", "widget-leads"},
		{"POST", "/api/v1/widget/leads;jsessionid=1", "widget-leads"},
		{"POST", "/api/v1;a/widget;b/leads;c", "widget-leads"},
		{"POST", "/api/v1/widget/leads.json", "widget-leads"},
		{"POST", "/api/v1/widget/leads/x", "widget-leads"},
		{"POST", "//api///v1/widget/./leads", "widget-leads"},
		{"POST", "/x/../api/v1/widget/leads", "widget-leads"},
		{"POST", "/../../api/v1/widget/leads", "widget-leads"},
		{"POST", "/x/..;/api/v1/widget/leads", "widget-leads"},
		{"POST", `\api\v1\widget\leads`, "widget-leads"},
		// The long s is an s to case-insensitive backends.
		{"POST", "/api/v1/widget/leadſ", "widget-leads"},
		{"POST", "/api/v1/w\u0131dget/leads", "widget-leads"}, // dotless i
		{"POST", "/api/v1/W\u0130DGET/leads", "widget-leads"}, // capital i with a dot
		{"POST", "/api/v1/widget/me\u00DFages", "widget-session"},
		{"POST", "/api/v1/widget/sati\u017Ffaction", "widget-satisfaction"},
		// The Kelvin sign is a k, so this is not a lead.
		{"POST", "/api/v1/widget/\u212Aeads", "widget-other"},
		{"POST", "/api/v1/widget/leads\xff", "widget-other"},
		{"POST", "/api/v1/widget/" + strings.Repeat("a", 5000), "widget-other"},
		{"POST", "/api/v1/widget/" + strings.Repeat("../widget/", 500) + "leads", "widget-leads"},
	} {
		if got := name(d.Match(test.method, "", test.path)); got != test.want {
			t.Errorf("%s %.80q is counted by %q, want %q", test.method, test.path, got, test.want)
		}
	}
}

// A literal precedes a prefix, a longer path a shorter one, and a route with a
// method one without (D8).
func TestTheMostSpecificRouteWins(t *testing.T) {
	d := deciderFor(t, map[string][]string{
		"all":        {"/*"},
		"a":          {"/a*"},
		"a-below":    {"/a/*"},
		"a-post":     {"POST /a*"},
		"ab":         {"/a/b"},
		"ab-prefix":  {"/a/b*"},
		"ab-get":     {"GET /a/b"},
		"abc-prefix": {"/a/b/c*"},
		"abd":        {"/a/b/d"},
	})
	for _, test := range []struct{ method, path, want string }{
		{"GET", "/", "all"},
		{"GET", "/z", "all"},
		{"GET", "/ax", "a"},
		{"POST", "/ax", "a-post"},
		{"GET", "/a", "a-below"},
		{"POST", "/a", "a-below"}, // "/a/*" is the longer prefix, and it covers its bare prefix
		{"GET", "/a/x", "a-below"},
		{"PUT", "/a/b", "ab"},
		{"GET", "/a/b", "ab-get"},
		{"HEAD", "/a/b", "ab-get"}, // a server of GET also serves HEAD
		{"GET", "/a/bx", "ab-prefix"},
		// A literal covers what follows it, before a prefix of the same length.
		{"PUT", "/a/b.json", "ab"},
		{"PUT", "/a/b/x", "ab"},
		{"PUT", "/a/b/c", "abc-prefix"},
		{"PUT", "/a/b/cx", "abc-prefix"},
		{"PUT", "/a/b/d", "abd"},
		{"PUT", "/a/b/d/e", "abd"},
	} {
		if got := name(d.Match(test.method, "", test.path)); got != test.want {
			t.Errorf("%s %s is counted by %q, want %q", test.method, test.path, got, test.want)
		}
	}
}

// A surface's fallback counts requests of which nothing else is known (D9, D10).
func TestTheFallbackIsTheLeastSpecificRoute(t *testing.T) {
	d := deciderFor(t, contractRoutes)
	for path, want := range map[string]string{
		"/api/v1/widget/leads":      "widget-other",
		"/api/v1/widget":            "widget-other",
		"/api/v1/widget/messages/x": "widget-other",
		"/v1/wp/documents":          "wp-plugin",
		"/elsewhere":                "",
	} {
		t.Run(path, func(t *testing.T) {
			if got := name(d.CatchAll("", path)); got != want {
				t.Errorf("the catch-all of %s is %q, want %q", path, got, want)
			}
		})
	}
	only := deciderFor(t, map[string][]string{"only": {"POST /only"}})
	if got := name(only.CatchAll("", "/only/x")); got != "only" {
		t.Errorf("if every route has a method, the catch-all is %q, want only", got)
	}
}

// A respelling is a change that makes no difference to the limiter (D10).
var respellings = []func(*rapid.T, string) string{
	func(_ *rapid.T, p string) string { return strings.ToUpper(p) },
	func(_ *rapid.T, p string) string { return p + "/" },
	func(_ *rapid.T, p string) string { return p + ";x=y" },
	func(_ *rapid.T, p string) string { return "/x/.." + p },
	func(t *rapid.T, p string) string { return atSlash(t, p, "//") },
	func(t *rapid.T, p string) string { return atSlash(t, p, "/./") },
	func(t *rapid.T, p string) string { return atSlash(t, p, ";v=1/") },
	func(t *rapid.T, p string) string { return atSlash(t, p, "/y/../") },
	func(t *rapid.T, p string) string { return atSlash(t, p, `\`) },
}

func atSlash(t *rapid.T, p, replacement string) string {
	slashes := strings.Count(p, "/")
	if slashes == 0 { // earlier respellings replaced them all
		return p
	}
	n := rapid.IntRange(1, slashes).Draw(t, "slash")
	i := 0
	for ; n > 0; n-- {
		i += strings.IndexByte(p[i:], '/') + 1
	}
	if i == 1 && replacement[0] == ';' {
		return p
	}
	return p[:i-1] + replacement + p[i:]
}

// No spelling of an endpoint has another limiter (D10).
func TestNoRespellingChangesTheLimiter(t *testing.T) {
	d := deciderFor(t, contractRoutes)
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.SampledFrom([]string{
			"/api/v1/widget/init", "/api/v1/widget/messages", "/api/v1/widget/leads", "/api/v1/widget/typing",
			"/api/v1/widget/satisfaction", "/api/v1/widget/coupon/apply", "/v1/wp/documents", "/api/v1/widget/other",
		}).Draw(t, "path")
		want := name(d.Match("POST", "", path))
		spelled := path
		for _, respell := range rapid.SliceOfN(rapid.SampledFrom(respellings), 1, 4).Draw(t, "respellings") {
			spelled = respell(t, spelled)
		}
		if got := name(d.Match("POST", "", spelled)); got != want {
			t.Fatalf("%q is counted by %q, and %q by %q", spelled, got, path, want)
		}
	})
}

func FuzzMatch(f *testing.F) {
	f.Add("POST", "/api/v1/widget/leads")
	f.Add("POST", "//x/..;/api\\v1/Widget/leads;a/b.json")
	f.Add("", "\xff\x00%2f")
	d := deciderFor(f, contractRoutes)
	f.Fuzz(func(t *testing.T, method, path string) {
		m := d.Match(method, "", path)
		again := d.Match(method, "", path+"/")
		if name(m) != name(again) {
			t.Errorf("%q is counted by %q, with a trailing slash by %q", path, name(m), name(again))
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	d := deciderFor(b, contractRoutes)
	for _, path := range []string{"/api/v1/widget/leads", "/api/v1/widget/messages/0190a7c4", "/api/v1/widget/else", "/healthz"} {
		b.Run(path[1:], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d.Match("POST", "", path)
			}
		})
	}
}

// Any path has one value of each parameter of its route, also with a trailing slash and
// in capitals.
func FuzzParameter(f *testing.F) {
	f.Add("/t/acme/items/42")
	f.Add("//t/./A;x/..\\b/users/c.json")
	f.Add("/t/\xff/%2f/.")
	d := deciderFor(f, map[string][]string{"l": {"/t/{tenant}/*", "/t/{tenant}/users/{user}", "/{any}/x*"}})
	f.Fuzz(func(t *testing.T, path string) {
		m, again := d.Match("GET", "", path), d.Match("GET", "", path+"/")
		if m.Route() != again.Route() {
			t.Fatalf("%q is covered by %v, with a trailing slash by %v", path, m.Route(), again.Route())
		}
		for _, name := range m.Route().Parameters() {
			a, ok := m.Parameter(name)
			b, _ := again.Parameter(name)
			if !ok || a == "" || a != b || strings.Contains(a, "/") {
				t.Errorf("%q: %s is %q, with a trailing slash %q", path, name, a, b)
			}
		}
	})
}
