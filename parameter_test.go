package weir_test

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// Literal text is more specific than a parameter, from the left; then a longer path
// than a shorter one, no star than a star, a method than none (D8).
func TestLiteralTextIsMoreSpecificThanAParameter(t *testing.T) {
	d := deciderFor(t, map[string][]string{
		"tenant":     {"/t/{tenant}"},
		"below":      {"/t/{tenant}/*"},
		"items":      {"/t/{tenant}/items*"},
		"items-get":  {"GET /t/{tenant}/items*"},
		"user":       {"/t/{tenant}/users/{user}"},
		"admin":      {"/t/{tenant}/users/admin"},
		"me":         {"/t/me/{what}"},
		"m":          {"/t/m*"},
		"new":        {"POST /t/new"},
		"deep":       {"/t/{a}/{b}/{c}/end"},
		"everything": {"/{any}/*"},
	})
	for _, test := range []struct{ method, path, want string }{
		{"PUT", "/t/acme", "tenant"},
		{"PUT", "/t/acme/", "tenant"},
		{"PUT", "/t/acme.json", "tenant"},
		{"PUT", "/T/ACME;x=1", "tenant"},
		{"PUT", "/t/acme/x", "below"},
		{"PUT", "/t/acme/items", "items"},
		{"GET", "/t/acme/items", "items-get"},
		{"HEAD", "/t/acme/items/42", "items-get"},
		{"PUT", "/t/acme/itemsx/y", "items"},
		{"PUT", "/t/acme/users", "below"},
		{"PUT", "/t/acme/users/ann", "user"},
		{"PUT", "/t/acme/users/ann/photo", "user"}, // a route without a star covers what follows it
		{"PUT", "/t/acme/users/admin", "admin"},
		{"PUT", "/t/acme/users/admin.json", "admin"},
		{"PUT", "/t/acme/users/admins", "user"},
		{"PUT", "/t/me/x", "me"},
		{"PUT", "/t/me", "m"}, // "me" has nothing below, so /t/me/{what} does not cover it
		{"PUT", "/t/mexico/items", "m"},
		{"POST", "/t/new", "new"},
		{"PUT", "/t/new", "tenant"},
		{"POST", "/t/new/items", "new"}, // literal text from the left comes before a longer path
		{"PUT", "/t/acme/1/2/end", "deep"},
		{"PUT", "/t/acme/1/2/3", "below"},
		{"PUT", "/t", "everything"},
		{"PUT", "/", ""},
		{"PUT", "/t//", "everything"}, // a parameter is never empty
		{"PUT", "/t/./acme/../other//items", "items"},
	} {
		if got := name(d.Match(test.method, "", test.path)); got != test.want {
			t.Errorf("%s %s is counted by %q, want %q", test.method, test.path, got, test.want)
		}
	}
}

func TestTheValueOfAParameterIsItsFoldedSegment(t *testing.T) {
	d := deciderFor(t, map[string][]string{"l": {"/t/{tenant}/*", "/t/{tenant}/users/{user}", "/files/{tenant}"}})
	for _, test := range []struct{ path, tenant, user string }{
		{"/t/acme", "acme", ""},
		{"/t/acme/", "acme", ""},
		{"/T/Acme;v=1/x", "acme", ""},
		{"/t/x/../acme", "acme", ""},
		{"/t//acme", "acme", ""},
		{"/t/acme.json", "acme", ""},
		{"/t/acme.json/", "acme", ""},
		{"/t/acme.tar.gz", "acme.tar", ""},
		{"/t/acme.", "acme", ""},
		{"/t/.acme", ".acme", ""},
		{"/t/acme.json/items", "acme.json", ""}, // a format is at the end of a path
		{"/t/acme/users/Ann", "acme", "ann"},
		{"/t/acme/users/ann.json", "acme", "ann"},
		{"/t/acme/users/ann.json/photo", "acme", "ann.json"},
		{"/t/\u212Aim/users/\u00DF", "kim", "ss"}, // the Kelvin sign and the sharp s
		{"/t/{tenant}/x", "{tenant}", ""},
		{"/t/a b/x", "a b", ""},
		{"/files/a/b/c", "a", ""},
	} {
		m := d.Match("GET", "", test.path)
		tenant, ok := m.Parameter("tenant")
		user, hasUser := m.Parameter("user")
		if tenant != test.tenant || !ok || user != test.user || hasUser != (test.user != "") {
			t.Errorf("%s: tenant %q %v, user %q %v; want %q and %q", test.path, tenant, ok, user, hasUser, test.tenant, test.user)
		}
	}
	if v, ok := d.Named("l").Parameter("tenant"); ok {
		t.Errorf("a limiter that was named has the parameter %q", v)
	}
}

func TestAParameterIsAWholeSegmentWithAName(t *testing.T) {
	for route, want := range map[string]string{
		"/t/{tenant}*":             "/t/{tenant}/* covers the segment",
		"/t/a{tenant}":             "a whole segment",
		"/t/{tenant}.json":         "a whole segment",
		"/t/{a}{b}":                "a whole segment",
		"/t/{{a}}":                 "a whole segment",
		"/t/{a":                    "a whole segment",
		"/t/a}":                    "a whole segment",
		"/t/{}":                    "a parameter's name",
		"/t/{Tenant}":              "a parameter's name",
		"/t/{1}":                   "a parameter's name",
		"/t/{a}/{a}":               "occurs twice",
		"/t/{a" + long(64) + "}/x": "at most 64",
	} {
		if _, err := weir.ParseRoute(route); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", route, err, want)
		}
	}
	for _, route := range []string{"/{a}", "GET /t/{a}/{b}/*", "/t/{a" + long(63) + "}", "/t/{a_b-1}/x*"} {
		if r, err := weir.ParseRoute(route); err != nil || r.String() != route {
			t.Errorf("%s is read as %q, %v", route, r, err)
		}
	}
}

func long(n int) string { return strings.Repeat("x", n) }

func TestEveryRouteOfALimiterHasTheParameterThatItCountsBy(t *testing.T) {
	for _, test := range []struct {
		routes []string
		want   string
	}{
		{[]string{"/t/{tenant}/items*", "GET /t/{x}/users/{tenant}"}, ""},
		{[]string{"/t/{tenant}", "/t/{owner}/x/{user}"}, `route "/t/{owner}/x/{user}" has no parameter {tenant}: it has {owner}, {user}`},
		{[]string{"/t/*"}, `route "/t/*" has no parameter {tenant}: it has none`},
		{nil, ""}, // callers name such a limiter, and may have Keys of their own
	} {
		l := routed(limiter("l", "9 per minute by ip+path:tenant"), test.routes...)
		problems := policyOf(l).Problems(weir.Sources())
		if got := fmt.Sprint(problems); (test.want == "") != (len(problems) == 0) || !strings.Contains(got, test.want) {
			t.Errorf("%v: %v, want %q", test.routes, got, test.want)
		}
	}
}

// The name of a parameter makes no difference to what a route covers.
func TestTwoRoutesThatDifferInAParametersNameAreOne(t *testing.T) {
	a, b := routed(limiter("a", "9 per minute by ip"), "GET /t/{a}/x"), routed(limiter("b", "9 per minute by ip"), "GET /T/{b}/x/")
	if err := fmt.Sprint(policyOf(a, b).Problems(nil)); !strings.Contains(err, `unreachable: limiter "a" has "GET /t/{a}/x"`) {
		t.Error(err)
	}
	a.Routes = append(a.Routes, b.Routes...)
	if err := fmt.Sprint(policyOf(a).Problems(nil)); !strings.Contains(err, "occurs twice") {
		t.Error(err)
	}
}

func TestTheCatchAllMayHaveParameters(t *testing.T) {
	d := deciderFor(t, map[string][]string{
		"wide": {"/t/{tenant}/*"}, "narrow": {"/t/{tenant}/items/{item}"}, "literal": {"/t/acme/items/7"}, "other": {"GET /o/{x}"},
	})
	for path, want := range map[string]string{"/t/acme/items/7": "wide", "/t/acme": "wide", "/t": "", "/o/x/y": "other"} {
		m := d.CatchAll("", path)
		if name(m) != want {
			t.Errorf("the catch-all of %s is %q, want %q", path, name(m), want)
		}
		if v, _ := m.Parameter("tenant"); want == "wide" && v != "acme" {
			t.Errorf("%s: tenant %q", path, v)
		}
	}
}

// get asks for a path. It returns whether the request was admitted, and by which
// bytes its first window counts.
func (b *bench) get(path string, c caller) (allowed bool, who string) {
	b.Helper()
	var s weir.Scratch
	got, err := b.d.Decide(b.Context(), weir.Request{Method: "GET", Path: path, Keys: c, Scratch: &s})
	if err != nil {
		b.Fatal(err)
	}
	if got.Outcome == weir.Unlimited {
		return got.Allowed, ""
	}
	return got.Allowed, string(s.Who(&got.Standings()[0]))
}

// No spelling of an endpoint has a second budget (D10), and each tenant has its own.
func TestAWindowCountsByAParameter(t *testing.T) {
	b := newBench(t, policyOf(routed(limiter("l", "3 per minute by path:tenant"), "/t/{tenant}/*")))
	for i, path := range []string{"/t/acme", "/t/ACME/items", "/t/acme.json", "/t/acme;x/y"} {
		if allowed, _ := b.get(path, ip); allowed != (i < 3) {
			t.Errorf("request %d, %s: allowed %v", i+1, path, allowed)
		}
	}
	if allowed, _ := b.get("/t/other", ip); !allowed {
		t.Error("another tenant has no budget")
	}
	// A request that names the limiter has no parameter, and is counted by address.
	for range 3 {
		if d := b.ask("l", 0, ip); !d.Allowed {
			t.Error("a caller that names the limiter is refused")
		}
	}
	if d := b.ask("l", 0, ip); d.Allowed {
		t.Error("a caller that names the limiter is not counted by its address")
	}
}

func TestALongParameterIsCountedByItsDigest(t *testing.T) {
	b := newBench(t, policyOf(routed(limiter("l", "9 per minute by path:a"), "/{a}/*")))
	_, x := b.get("/"+long(8000)+"x", ip)
	_, y := b.get("/"+long(8000)+"y", ip)
	if x == y || len(x) > 100 {
		t.Errorf("two long segments are counted by %d bytes, equal: %v", len(x), x == y)
	}
}

// Shadows and a candidate count by their own route's parameters.
func TestTrialsCountByTheirOwnParameters(t *testing.T) {
	live := routed(limiter("live", "9 per minute by path:a"), "/t/{a}/{b}")
	shadow := shadowOf(routed(limiter("shadow", "1 per minute by path:who"), "/t/{x}/{who}"))
	x := newTried(t, policyOf(live, shadow))
	candidate := policyOf(routed(limiter("c", "1 per minute by path:p"), "/t/{q}/{p}"))
	store := newStore(t, storetest.StartManualClock())
	if err := x.d.SetCandidate(&candidate, store); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/t/1/ann", "/t/1/bob", "/t/2/ann"} {
		x.get(path, ip)
	}
	if shadows, compared := x.take(); shadows != "shadow true; shadow true; shadow false" || strings.Count(compared, "refused by c") != 1 {
		t.Errorf("shadows: %s; compared: %s", shadows, compared)
	}
}

// An operator who asks about a saved caller gets the window that counted it.
func TestASavedCallerHasItsParameters(t *testing.T) {
	l := routed(limiter("l", "9 per minute by path:tenant+ip"), "/t/{tenant}/*")
	b := newBench(t, policyOf(l))
	var s weir.Scratch
	m := b.d.Match("GET", "", "/t/Acme/x")
	if _, err := b.d.Decide(t.Context(), weir.Request{Match: m, Keys: ip, Scratch: &s}); err != nil {
		t.Fatal(err)
	}
	saved := weir.SaveKeys(&l, s.Caller(ip))
	state, err := b.d.Inspect(t.Context(), "l", saved)
	if err != nil || state[0].Count != 1 {
		t.Errorf("the window has %+v, %v", state, err)
	}
	if v, _ := saved.AppendKey(nil, "path:tenant"); !bytes.Equal(v, []byte("acme")) {
		t.Errorf("tenant %q", v)
	}
	if _, err := b.d.Decide(t.Context(), weir.Request{Path: "/elsewhere", Keys: ip, Scratch: &s}); err != nil || len(weir.SaveKeys(&l, s.Caller(ip))) != 1 {
		t.Errorf("the parameters of the request before are left, or %v", err)
	}
}

// Shadows whose parameters and literal segments meet at one path are counted there.
func TestTheLimitOfShadowsWithParameters(t *testing.T) {
	var all []weir.Limiter
	for i, route := range []string{"/{a}/b/{c}", "/a/{b}/{c}", "/{a}/{b}/c", "/{a}/{b}/{c}"} {
		all = append(all, shadowOf(routed(limiter(string(rune('p'+i)), "9 per minute by ip"), route)))
	}
	x := newTried(t, policyOf(all...))
	x.get("/a/b/c", ip)
	x.wantShadows("q true; p true; r true; s true")
	five := shadowOf(routed(limiter("t", "9 per minute by ip"), "/a/b/*"))
	if err := x.d.Swap(policyOf(append(slices.Clone(all), five)...)); err == nil || !strings.Contains(err.Error(), "5 limiters in mode shadow") {
		t.Errorf("five shadows over /a/b/c: %v", err)
	}
	apart := shadowOf(routed(limiter("t", "9 per minute by ip"), "/x/y/z"))
	if err := x.d.Swap(policyOf(append(slices.Clone(all[:3]), apart)...)); err != nil {
		t.Errorf("shadows that do not meet: %v", err)
	}
}

func TestCountingByAParameterDoesNotAllocate(t *testing.T) {
	b := newBench(t, policyOf(routed(limiter("l", "1000000 per minute by path:tenant+ip"), "/t/{tenant}/*")))
	var s weir.Scratch
	var out weir.Decision
	keys := &fixedKeys{}
	if n := testing.AllocsPerRun(100, func() {
		r := weir.Request{Method: "GET", Path: "/t/acme/items/42", Keys: keys, Scratch: &s}
		if err := b.d.DecideInto(b.Context(), &r, &out); err != nil {
			t.Fatal(err)
		}
		if s.Caller(keys) == weir.Keys(keys) {
			t.Fatal("the Scratch has no parameters")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A reference of D8: every route is looked at, and covering ones are sorted.

// segmentsOf folds an ASCII path.
func segmentsOf(path string) (all []string) {
	for _, s := range strings.FieldsFunc(path, func(c rune) bool { return c == '/' || c == '\\' }) {
		s, _, _ = strings.Cut(strings.ToLower(s), ";")
		switch {
		case s == "" || s == ".":
		case s == "..":
			all = all[:max(len(all)-1, 0)]
		default:
			all = append(all, s)
		}
	}
	return all
}

func isParameter(segment string) bool { return segment[0] == '{' }

// covers reports whether a route covers a path, and how the path goes on after it: "",
// "." or "/".
func covers(r weir.Route, path []string) (rest string, ok bool) {
	pattern, partial := segmentsOf(r.Path), r.Prefix && !strings.HasSuffix(r.Path, "/")
	if len(pattern) > len(path) {
		return "", false
	}
	if len(path) > len(pattern) {
		rest = "/"
	}
	for i, s := range pattern {
		switch {
		case isParameter(s) || s == path[i]:
		case i < len(pattern)-1 || !strings.HasPrefix(path[i], s):
			return "", false
		case path[i][len(s)] == '.':
			rest = "."
		case partial:
			rest = "x"
		default:
			return "", false
		}
	}
	return rest, true
}

// rank returns how well a route fits a method, higher first; 0 for not at all.
func rank(r weir.Route, method string) int {
	switch {
	case r.Method == method && method != "":
		return 3
	case r.Method == "GET" && method == "HEAD":
		return 2
	case r.Method == "":
		return 1
	}
	return 0
}

// compare sorts the more specific of two routes that cover path first.
func compare(a, b weir.Route, method string, path []string) int {
	p, q := segmentsOf(a.Path), segmentsOf(b.Path)
	for i := range min(len(p), len(q)) {
		switch {
		case isParameter(p[i]) && isParameter(q[i]):
		case isParameter(p[i]):
			return 1
		case isParameter(q[i]):
			return -1
		case p[i] != q[i]: // one begins with the other
			return len(q[i]) - len(p[i])
		}
	}
	kind := func(r weir.Route) int {
		rest, _ := covers(r, path)
		below := strings.HasSuffix(r.Path, "/")
		switch {
		case r.Prefix && !below:
			return 0
		case r.Prefix == (rest == "/"):
			return 2
		}
		return 1
	}
	return cmp.Or(len(q)-len(p), kind(b)-kind(a), rank(b, method)-rank(a, method))
}

var aSegment = rapid.SampledFrom([]string{"a", "b", "ab", "a.x", "abc", "a.", "{p}", "{p}", "{p}"})

func aRoute(t *rapid.T) string {
	var path string
	for i := range rapid.IntRange(0, 4).Draw(t, "segments") {
		path += "/" + strings.Replace(aSegment.Draw(t, "segment"), "p", fmt.Sprint("p", i), 1)
	}
	end := rapid.SampledFrom([]string{"", "", "*", "/*"}).Draw(t, "end")
	if path == "" || end == "*" && strings.HasSuffix(path, "}") {
		end = "/*"
	}
	return rapid.SampledFrom([]string{"", "", "GET ", "POST "}).Draw(t, "method") + path + end
}

var aPath = rapid.Custom(func(t *rapid.T) string {
	s := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "A", "ab", "AB;x", "a.x", "a.X;y", "abcd", "a.x.y", "z", "", ".", "..", ";", "a.", "{p0}"}), 0, 6).Draw(t, "path")
	return "/" + strings.Join(s, rapid.SampledFrom([]string{"/", "/", "//", `\`}).Draw(t, "slash"))
})

// The tables find the routes that a search through all of them finds, in its order.
func TestRoutesWithParametersMatchAsAReferenceDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p weir.Policy
		for i := range rapid.IntRange(1, 12).Draw(t, "limiters") {
			l := routed(limiter(fmt.Sprint("l", i), "1 per minute by ip"), aRoute(t))
			if next := policyOf(append(slices.Clone(p.Limiters), l)...); len(next.Problems(nil)) == 0 {
				p = next
			}
		}
		routes, err := weir.NewRoutes(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range rapid.SliceOfN(aPath, 1, 8).Draw(t, "paths") {
			for _, method := range []string{"GET", "HEAD", "PUT"} {
				var want []weir.Route
				segments := segmentsOf(path)
				for _, l := range p.Limiters {
					if _, ok := covers(l.Routes[0], segments); ok && rank(l.Routes[0], method) > 0 {
						want = append(want, l.Routes[0])
					}
				}
				slices.SortFunc(want, func(a, b weir.Route) int { return compare(a, b, method, segments) })
				var got []weir.Route
				for _, m := range routes.Covering(method, "", path) {
					got = append(got, m.Route())
					checkParameters(t, m, segments)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%s %s is covered by %v, want %v", method, path, got, want)
				}
				if len(want) > 0 && routes.Match(method, "", path).Route() != want[0] {
					t.Fatalf("%s %s matches %v, want %v", method, path, routes.Match(method, "", path).Route(), want[0])
				}
			}
		}
	})
}

func checkParameters(t *rapid.T, m weir.Match, path []string) {
	for i, s := range segmentsOf(m.Route().Path) {
		if !isParameter(s) {
			continue
		}
		want := path[i]
		if at := strings.LastIndex(want, "."); at > 0 && i == len(path)-1 {
			want = want[:at]
		}
		if got, ok := m.Parameter(s[1 : len(s)-1]); got != want || !ok {
			t.Fatalf("%v of %v: %s is %q, want %q", m.Route(), path, s, got, want)
		}
	}
}
