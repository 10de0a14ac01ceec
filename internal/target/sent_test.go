package target

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// sentRoutes are the limiters of these tests, by route.
var sentRoutes = map[string]string{
	"search": "/v1/search", "files": "/v1/{tenant}/files/*", "free": "/free/*", "projects": "/projects/{tenant}", "all": "/*",
}

func sentDecider(t testing.TB) *weir.Decider {
	t.Helper()
	store, err := memstore.New(memstore.Options{Memory: memstore.MinMemory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	var p weir.Policy
	for name, spelled := range sentRoutes {
		route, err := weir.ParseRoute(spelled)
		if err != nil {
			t.Fatal(err)
		}
		l := weir.Limiter{Name: name, Routes: []weir.Route{route}, Windows: []weir.Window{{Limit: 1, Per: time.Minute, Key: weir.Key{{"ip"}}}}}
		if strings.Contains(spelled, "{") {
			l.Windows[0].Key = weir.Key{{"ip"}, {"path:tenant"}}
		}
		p.Limiters = append(p.Limiters, l)
	}
	d, err := weir.New(p, store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A charge is what a path is counted by.
type charge struct{ limiter, tenant string }

// chargeOf returns what a path is counted by if it is forwarded as sent; ok is false if it is not
// forwarded.
func chargeOf(d *weir.Decider, path string) (c charge, ok bool) {
	r := Request{Method: "GET"}
	r.ReadAsSent(path)
	var choice Choice
	Choose(d, &r, &choice)
	c.limiter = choice.Match.Limiter().Name
	c.tenant, _ = choice.Match.Parameter("tenant")
	return c, choice.Kind == Plain
}

func TestAPathAsSentIsCountedByItsFoldedForm(t *testing.T) {
	d := sentDecider(t)
	for _, c := range []struct {
		path    string
		forward bool
		charge
	}{
		{"/free/x", true, charge{"free", ""}},
		{"/free/a//b", true, charge{"free", ""}},
		{"/FREE/https://example.com/x.png", true, charge{"free", ""}},
		{"/@scope%2fname", true, charge{"all", ""}},
		{"/free/%252F%25", true, charge{"free", ""}},
		{"/free/caf\xc3\xa9", true, charge{"free", ""}},
		{"/free/caf%C3%A9%E9\xff", true, charge{"free", ""}},
		{"/free/a;x=%2Fb", true, charge{"free", ""}},
		{"/free/100%25", true, charge{"free", ""}},
		{"/free/.well-known/...", true, charge{"free", ""}},
		{"/fr%65e/x", true, charge{"free", ""}}, // every backend decodes once
		{"/v1/%73earch", true, charge{"search", ""}},
		{"/projects/Group%2Fproject", true, charge{"projects", "group"}},
		{"/projects/group/project", true, charge{"projects", "group"}},
		{"/projects/gro%75p%252fproject.json", true, charge{"projects", "group"}},
		{"/projects/gr%C3%B6up%2Fx", true, charge{"projects", "gr\u00f6up"}},
		{"/projects/gr%F6up%2Fx", true, charge{"projects", "gr\u00f6up"}},
		{"/v1/acme/files/a%2Fb//c", true, charge{"files", "acme"}},
		// Backends read another limiter's path, or another value.
		{"/v1%2Fsearch", false, charge{"all", ""}},
		{"/v1/search%2F", false, charge{"all", ""}},
		{"/v1//search", false, charge{"all", ""}},
		{"/v1/%2573earch", false, charge{"all", ""}},
		{"/v1/%c1%b3earch", false, charge{"all", ""}},
		{"/v1/a%2Fb/files/x", false, charge{"all", ""}},
		{"/v1/a/%2Ffiles/x", false, charge{"all", ""}},
		{"/projects//x", false, charge{"all", ""}},
		// A server before the backend merges the first two slashes.
		{"/v1//%2Ffiles/x", false, charge{"all", ""}},
		// Some drop .x%2Fproject as a format.
		{"/projects/group.x%2Fproject", false, charge{"all", ""}},
		// No backend can be sent these.
		{"/free/%2e%2e%2fv1/search", false, charge{"all", ""}},
		{"/free/x%2f..%2f..%2fv1%2fsearch", false, charge{"all", ""}},
		{"/free/../v1/search", false, charge{"all", ""}},
		{"/free/./x", false, charge{"all", ""}},
		{"/free/..;x/v1/search", false, charge{"all", ""}},
		{"/free/..%3bx", false, charge{"all", ""}},
		{"/free/%252e%252e/x", false, charge{"all", ""}},
		{"/free/%c0%ae%c0%ae/x", false, charge{"all", ""}},
		{"/free/\\x", false, charge{"all", ""}},
		{"/free/%5cx", false, charge{"all", ""}},
		{"/free/%00", false, charge{"all", ""}},
		{"/free/\x7f", false, charge{"all", ""}},
		{"/free/%0d%0aX", false, charge{"all", ""}},
		{"/free/%c2%85", false, charge{"all", ""}},
		{"/free/a b", false, charge{"all", ""}},
		{"/free/a#b", false, charge{"all", ""}},
		{"/free/%25u002f", false, charge{"all", ""}},
		{"/free/%2525252525", false, charge{"all", ""}},
		{"/free/%c0%25af", false, charge{"all", ""}},
		{"/free/%20", false, charge{"all", ""}},
		{"/free/.%20./x", false, charge{"all", ""}},
		{"/free/;x/y", false, charge{"all", ""}},
		{"//v1/search", false, charge{"all", ""}},
		{"/%2fhost/free/x", false, charge{"all", ""}},
		{"/free/%2f" + strings.Repeat("x", maxSent), false, charge{"all", ""}},
	} {
		t.Run(strconv.Quote(c.path)[:min(40, len(c.path))], func(t *testing.T) {
			got, forward := chargeOf(d, c.path)
			if forward != c.forward || got.limiter != c.limiter || forward && got.tenant != c.tenant {
				t.Errorf("%.60q: forwarded %v, counted by %v, want %v, %v", c.path, forward, got, c.forward, c.charge)
			}
		})
	}
}

// A decoder is how a backend reads a path: as segments, which may have slashes.
type decoder struct {
	before, after int // decodings before the path is split at its slashes, and after
	merges        bool
	lax           bool // it also accepts invalid UTF-8, before it splits if before is set
	early         int  // decodings after which a server before it merges slashes; -1: none does
}

// decoders are many of them. They share no code with the tested functions.
func decoders() (all []decoder) {
	for before := range 4 {
		for after := range 4 - before {
			for _, merges := range []bool{false, true} {
				for early := -1; early <= before && before+after > 0; early++ {
					all = append(all, decoder{before, after, merges, false, early}, decoder{before, after, merges, true, early})
				}
			}
		}
	}
	return all
}

var (
	escape  = regexp.MustCompile(`%[0-9a-fA-F]{2}`)
	slashes = regexp.MustCompile(`//+`)
)

// repeat decodes a text n times.
func (d decoder) repeat(s string, n int) string {
	for range n {
		s = escape.ReplaceAllStringFunc(s, func(e string) string {
			c, _ := strconv.ParseUint(e[1:], 16, 8)
			return string([]byte{byte(c)})
		})
	}
	if !d.lax || n == 0 || utf8.ValidString(s) {
		return s
	}
	s = strings.NewReplacer("\xc0\xaf", "/", "\xe0\x80\xaf", "/", "\xc0\xae", ".", "\xc1\xb3", "s").Replace(s)
	var b strings.Builder
	for i, r := range s {
		if _, size := utf8.DecodeRuneInString(s[i:]); r == utf8.RuneError && size == 1 {
			r = rune(s[i])
		}
		b.WriteRune(r)
	}
	return b.String()
}

func (d decoder) read(path string) (segments []string) {
	if d.early >= 0 {
		path = slashes.ReplaceAllString(d.repeat(path, d.early), "/")
	}
	for s := range strings.SplitSeq(d.repeat(path, d.before-max(d.early, 0))[1:], "/") {
		if s = d.repeat(s, d.after); s != "" || !d.merges {
			s, _, _ = strings.Cut(strings.ToLower(s), ";")
			// as if paths are strict
			segments = append(segments, strings.Trim(strings.ReplaceAll(s, " .", "."), " "))
		}
	}
	for len(segments) > 0 && segments[len(segments)-1] == "" {
		segments = segments[:len(segments)-1]
	}
	return segments
}

// routed is the router of a backend with the endpoints of sentRoutes.
func routed(segments []string) charge {
	at := func(i int) string {
		if i < len(segments) {
			return segments[i]
		}
		return ""
	}
	is := func(s, name string) bool { return s == name || strings.HasPrefix(s, name+".") }
	last := func(i int) string { // a format is no part of the last segment
		if dot := strings.LastIndexByte(at(i), '.'); dot > 0 && i == len(segments)-1 {
			return at(i)[:dot]
		}
		return at(i)
	}
	switch {
	case at(0) == "v1" && is(at(1), "search"):
		return charge{"search", ""}
	case at(0) == "v1" && is(at(2), "files"):
		return charge{"files", at(1)}
	case is(at(0), "free"):
		return charge{"free", ""}
	case at(0) == "projects" && len(segments) > 1:
		return charge{"projects", last(1)}
	}
	return charge{"all", ""}
}

// checkSent checks two paths: a backend has an endpoint for each that is forwarded, whichever way
// it decodes, and that endpoint's limiter counts it. Two that are the same path, or have the same
// tenant, to one backend have the same budget.
func checkSent(t interface {
	Fatalf(string, ...any)
}, d *weir.Decider, paths ...string) {
	for _, by := range decoders() {
		var reads, budgets []charge
		for _, path := range paths {
			counted, ok := chargeOf(d, path)
			if !ok {
				continue
			}
			segments := by.read(path)
			read := routed(segments)
			if read.limiter != counted.limiter {
				t.Fatalf("%q is counted by %s, and %+v reads %q, an endpoint of %s", path, counted.limiter, by, segments, read.limiter)
			}
			if i := slices.Index(reads, read); i >= 0 && budgets[i] != counted {
				t.Fatalf("%q: %+v reads %v in each, counted by %v and %v", paths, by, read, budgets[i], counted)
			}
			reads, budgets = append(reads, read), append(budgets, counted)
		}
	}
}

// pieces are what the paths of the property are made of.
var pieces = []string{
	"/", "/", "/", "//", "%2f", "%2F", "%252f", "%25252F", "%c0%af", "\xe0\x80\xaf", "v1", "V1", "search", "%73earch", "%2573earch", "\xc1\xb3earch",
	"files", "%66iles", "free", "projects", "/v1/", "/projects/", "/files/", "a", "b", "A", "%61", "%2561", ".", "..", "%2e", "%2e%2e", "%c0%ae", "a.json", ".x",
	";x", "%3b", "%253b", ";", "\u00e9", "%c3%a9", "%e9", "\xe9", "%C3%89", "%25", "%20", "\\", "%5c", "%00", "%u002f", "@", "%40",
}

func TestNoSpellingAsSentHasABudgetOfItsOwn(t *testing.T) {
	d := sentDecider(t)
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.Custom(func(t *rapid.T) string {
			begin := rapid.SampledFrom([]string{"/", "/v1/", "/projects/", "/v1/a/files/", "/free/"}).Draw(t, "begin")
			return begin + strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 6).Draw(t, "pieces"), "")
		})
		checkSent(t, d, path.Draw(t, "one"), path.Draw(t, "other"), path.Draw(t, "third"))
	})
}

// What the access log has of a path that was forwarded leads to the same charge, however the log is
// read.
func checkCounted(t interface {
	Fatalf(string, ...any)
}, d *weir.Decider, path string) {
	r := Request{Method: "GET"}
	r.ReadAsSent(path)
	var choice Choice
	if Choose(d, &r, &choice); choice.Kind != Plain || r.Sent == "" {
		return
	}
	want, _ := chargeOf(d, path)
	counted := r.Counted()
	if got, ok := chargeOf(d, counted); !ok || got != want {
		t.Fatalf("%q is counted as %q by %v; that path as sent: forwarded %v, counted by %v", path, counted, want, ok, got)
	}
	u, err := Parse("GET", counted)
	if err != nil || counted == path && !IsPlain(path) {
		return // only for as-sent
	}
	strict := Request{Method: "GET"}
	strict.Read(u)
	Choose(d, &strict, &choice)
	tenant, _ := choice.Match.Parameter("tenant")
	if got := (charge{choice.Match.Limiter().Name, tenant}); choice.Kind != Plain || got != want {
		t.Fatalf("%q is counted as %q by %v; that path read strictly: kind %v, counted by %v", path, counted, want, choice.Kind, got)
	}
}

func TestThePathThatWasCountedIsCountedSoAgain(t *testing.T) {
	d := sentDecider(t)
	for path, want := range map[string]string{
		"/projects/Group%2Fproject":         "/projects/Group/project",
		"/projects/gro%75p%252fproject":     "/projects/group/project",
		"/free/caf\xc3\xa9":                 "/free/caf%C3%A9",
		"/free/caf%E9":                      "/free/caf%C3%A9",
		"/free/a//b%25":                     "/free/a/b%25",
		"/free/x%3f%23":                     "/free/x%3F%23",
		"/free/x%2fhttps://example.com/%40": "/free/x/https:/example.com/@",
		"/free/%85":                         "/free/%85", // strict has no form of it
	} {
		r := Request{Method: "GET"}
		r.ReadAsSent(path)
		if got := r.Counted(); r.Sent == "" || got != want {
			t.Errorf("%q is counted as %q, want %q", path, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		begin := rapid.SampledFrom([]string{"/", "/v1/", "/projects/", "/v1/a/files/", "/free/"}).Draw(t, "begin")
		checkCounted(t, d, begin+strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 6).Draw(t, "pieces"), ""))
	})
}

// Each of these spells the other differently.
func TestSpellingsOfOnePathShareABudget(t *testing.T) {
	d := sentDecider(t)
	for _, spellings := range [][]string{
		{"/projects/a", "/projects/%61", "/PROJECTS/A", "/projects/%2561", "/projects/a;x", "/projects/a/", "/projects/a%2fb", "/projects/a.json", "/projects/a//"},
		{"/projects/\u00e9", "/projects/%c3%a9", "/projects/%E9", "/projects/\xe9", "/projects/\u00c9", "/projects/%25e9"},
		{"/v1/search", "/v1/%73earch", "/V1/Search", "/v1/search/x%2fy", "/v1/search%3bx", "/v1/search.json"},
	} {
		want, _ := chargeOf(d, spellings[0])
		for _, s := range spellings[1:] {
			if got, ok := chargeOf(d, s); !ok || got != want {
				t.Errorf("%q: forwarded %v, counted by %v, want %v, as %q is", s, ok, got, want, spellings[0])
			}
		}
		checkSent(t, d, spellings...)
	}
}

func FuzzSpellingsAsSent(f *testing.F) {
	d := sentDecider(f)
	for _, p := range pieces {
		f.Add("/v1/a"+p+"search", "/projects/a"+p)
	}
	f.Fuzz(func(t *testing.T, one, other string) {
		if strings.HasPrefix(one, "/") && strings.HasPrefix(other, "/") && !strings.Contains(one+other, "?") {
			checkSent(t, d, one, other)
			checkCounted(t, d, one)
		}
	})
}

// A path of the greatest length costs little, however it is escaped.
func TestAPathAsSentHasFewReadings(t *testing.T) {
	for _, path := range []string{
		"/" + strings.Repeat("%2f%252f%25252fa", maxSent/16-1),
		"/a" + strings.Repeat("//%2f%c0%af", maxSent/12-1),
		"/a" + strings.Repeat("/", maxSent-2),
	} {
		var r Request
		r.ReadAsSent(path)
		if len(r.readings) > 24 {
			t.Errorf("%.20q…: %d readings", path, len(r.readings))
		}
	}
}

func BenchmarkReadAsSent(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		r := Request{Method: "GET"}
		r.ReadAsSent("/api/v4/projects/group%2Fproject/repository/files/a%2Fb")
	}
}
