package target

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
)

// namelessDecider has the routes of routedNameless.
func namelessDecider(t testing.TB) *weir.Decider {
	t.Helper()
	limiter := func(name string, key weir.Key, routes ...weir.Route) weir.Limiter {
		return weir.Limiter{Name: name, Routes: routes, Chosen: true, Windows: []weir.Window{{Limit: 1, Per: time.Minute, Key: key}}}
	}
	ip := weir.Key{{"ip"}}
	return deciderOf(t, weir.Policy{Limiters: []weir.Limiter{
		limiter("all", ip, weir.Route{Path: "/", Prefix: true}),
		limiter("expensive", ip, weir.Route{Method: "GET", Path: "/translate/{text}/to"}),
		limiter("deep", ip, weir.Route{Method: "GET", Path: "/via/{text}/{more}/from"}),
		limiter("tenants", weir.Key{{"path:tenant"}}, weir.Route{Path: "/u/{tenant}/", Prefix: true}),
	}})
}

// choose returns how a path is handled, and its limiter and tenant.
func choose(t interface{ Fatal(...any) }, d *weir.Decider, path string) (Kind, charge) {
	u, err := Parse("GET", path)
	if err != nil {
		t.Fatal(err)
	}
	r := Request{Method: "GET"}
	r.Read(u)
	var choice Choice
	Choose(d, &r, &choice)
	tenant, _ := choice.Match.Parameter("tenant")
	return choice.Kind, charge{choice.Match.Limiter().Name, tenant}
}

// A backend may drop one kind of nameless segments and take another one as a name, as a servlet
// container does, which cuts ";x" off before it decodes.
func TestEachKindOfNamelessSegmentIsReadInBothWays(t *testing.T) {
	d := namelessDecider(t)
	for _, path := range []string{
		"/translate/%3Fabc/to", "/translate/;x/to", "/translate/%3Fabc/;x/to", "/translate/%20/;x/to", "/translate/;x/%3Fabc/to",
		"/translate/%23/;x/to", "/translate/%3Bx/;x/to", "/translate/;jsessionid=1/;x/to", "/;x/translate/%20/to", "/via/a/%20;x/%3F/from",
		"/via/;x/%20/a/from", "/u/;x/%3Fann", "/u/%20/;x/ann",
	} {
		if kind, got := choose(t, d, path); kind != Unreadable || got.limiter != "all" {
			t.Errorf("GET %s: kind %d, counted by %v, want %d and the catch-all", path, kind, got, Unreadable)
		}
	}
	for path, want := range map[string]charge{
		"/translate/hello/to":    {"expensive", ""},
		"/translate/what%3F/to":  {"expensive", ""},
		"/translate/a;x/to/;x":   {"expensive", ""},
		"/u/ann/%20/;x/%3Fb":     {"tenants", "ann"},
		"/u/Ann;x/;x/;y/%20/b":   {"tenants", "ann"},
		"/other/%20/;x/%3F/;y":   {"all", ""},
		"/;a/;b/;c/%20/%3F/%23x": {"all", ""},
	} {
		if kind, got := choose(t, d, path); kind != Plain || got != want {
			t.Errorf("GET %s: kind %d, counted by %v, want %d, %v", path, kind, got, Plain, want)
		}
	}
}

// A segmenter is a backend that cuts off what follows some characters, and drops the segments that
// are empty then. It shares no code with the tested functions.
type segmenter struct {
	cuts  []string // as the path has them
	trims bool     // blanks
	last  bool     // cuts and trims only in the last segment
}

// segmenters are all of them.
func segmenters() (all []segmenter) {
	marks := []string{";", ";jsessionid=", "%3B", "%3F", "%23"}
	for chosen := range 1 << len(marks) {
		var cuts []string
		for i, mark := range marks {
			if chosen&(1<<i) != 0 {
				cuts = append(cuts, mark)
			}
		}
		for _, trims := range []bool{false, true} {
			all = append(all, segmenter{cuts, trims, false}, segmenter{cuts, trims, true})
		}
	}
	return all
}

// read returns the segments of a canonical path, escaped.
func (s segmenter) read(path string) (segments []string) {
	raw := strings.Split(path[1:], "/")
	for i, segment := range raw {
		if !s.last || i == len(raw)-1 {
			for _, mark := range s.cuts {
				segment, _, _ = strings.Cut(segment, mark)
			}
			for s.trims && strings.HasPrefix(segment, "%20") {
				segment = segment[3:]
			}
			for s.trims && strings.HasSuffix(segment, "%20") {
				segment = segment[:len(segment)-3]
			}
		}
		if segment != "" {
			segments = append(segments, segment)
		}
	}
	return segments
}

// routedNameless is the router of a backend with the endpoints of namelessDecider.
func routedNameless(segments []string) charge {
	n := len(segments)
	switch {
	case n == 3 && segments[0] == "translate" && segments[2] == "to":
		return charge{"expensive", ""}
	case n == 4 && segments[0] == "via" && segments[3] == "from":
		return charge{"deep", ""}
	case n >= 2 && segments[0] == "u":
		return charge{"tenants", segments[1]}
	}
	return charge{"all", ""}
}

// No path is forwarded that a backend routes to an endpoint of a limiter that does not count it.
// The other direction does not hold: "/translate/a/to/b" counts as "/translate/a/to".
func TestNoNamelessSegmentChangesTheLimiter(t *testing.T) {
	d := namelessDecider(t)
	readers := segmenters()
	nameless := rapid.SampledFrom([]string{";x", ";", ";jsessionid=1", "%3Bx", "%3Fabc", "%23", "%20", "%20%20", ".%20.", "%20;x", "%20%3F", ";x%3Fy"})
	names := rapid.SampledFrom([]string{"translate", "via", "u", "to", "from", "ann", "bob"})
	rapid.Check(t, func(t *rapid.T) {
		begin := rapid.SampledFrom([]string{"/translate", "/via", "/u", ""}).Draw(t, "begin")
		path := begin + "/" + strings.Join(rapid.SliceOfN(rapid.OneOf(nameless, nameless, names), 1, 9).Draw(t, "segments"), "/")
		path += rapid.SampledFrom([]string{"", "/to", "/from"}).Draw(t, "end")
		kind, counted := choose(t, d, path)
		if kind != Plain {
			return
		}
		canonical, err := Canonical(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, by := range readers {
			segments := by.read(canonical)
			read := routedNameless(segments)
			if read.limiter != "all" && read != counted {
				t.Fatalf("GET %s is counted by %v, and %+v reads %q, an endpoint of %v", path, counted, by, segments, read)
			}
		}
	})
}

// Whoever sends many nameless segments is refused, rather than have all their readings looked up.
func TestAPathHasFewNamelessSegments(t *testing.T) {
	d := namelessDecider(t)
	for _, c := range []struct {
		length, nameless int
		want             Kind
	}{
		{0, maxNameless, Plain},
		{0, maxNameless + 1, Unreadable},
		{0, 1000, Unreadable},
		{2800, maxNameless, Plain},
		{8000, 4, Plain},
		{8000, 5, Unreadable},
		{maxReadBytes, 1, Plain},
	} {
		path := "/other" + strings.Repeat("/a", c.length/2) + strings.Repeat("/;x", c.nameless)
		if kind, got := choose(t, d, path); kind != c.want || got.limiter != "all" {
			t.Errorf("%d bytes, %d nameless segments: kind %d, counted by %v, want %d and the catch-all", c.length, c.nameless, kind, got, c.want)
		}
	}
}

func BenchmarkNamelessSegments(b *testing.B) {
	d := namelessDecider(b)
	path := "/other/" + strings.Repeat("a/", 4000) + strings.Repeat(";x/", 4)
	b.ReportAllocs()
	for b.Loop() {
		choose(b, d, path)
	}
}
