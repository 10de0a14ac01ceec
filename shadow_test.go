package weir_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

func routes(specs ...string) []weir.Route {
	var all []weir.Route
	for _, s := range specs {
		r, err := weir.ParseRoute(s)
		if err != nil {
			panic(err)
		}
		all = append(all, r)
	}
	return all
}

func shadowOf(l weir.Limiter) weir.Limiter {
	l.Mode = weir.Shadow
	return l
}

func routed(l weir.Limiter, specs ...string) weir.Limiter {
	l.Routes = routes(specs...)
	return l
}

// A tried is a decider that records its shadows and comparisons.
type tried struct {
	*bench
	mu       sync.Mutex
	shadows  []string // "limiter allowed", in order
	compared []string // "live candidate"
}

func newTried(t testing.TB, p weir.Policy) *tried {
	t.Helper()
	out := &tried{bench: &bench{TB: t, clock: storetest.StartManualClock()}}
	d, err := weir.New(p, newStore(t, out.clock), weir.Options{OnShadow: out.onShadow, OnCandidate: out.onCandidate})
	if err != nil {
		t.Fatal(err)
	}
	out.d = d
	return out
}

func (x *tried) onShadow(s weir.Shadowed) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s.Skipped {
		x.shadows = append(x.shadows, s.Limiter.Name+" skipped")
		return
	}
	x.shadows = append(x.shadows, fmt.Sprint(s.Limiter.Name, " ", s.Decision.Allowed))
}

func word(d *weir.Decision) string {
	switch {
	case d.Outcome == weir.Unlimited && d.Allowed:
		return "unlimited"
	case d.Outcome == weir.Denied:
		return "denied by " + d.DeniedBy.Name
	case d.Allowed:
		return "allowed by " + d.Binding().Limiter.Name
	case d.Outcome == weir.Unlimited:
		return "never served"
	}
	return "refused by " + d.Binding().Limiter.Name
}

func (x *tried) onCandidate(c weir.Compared) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.compared = append(x.compared, word(c.Live)+", "+word(c.Candidate))
	if (c.LiveWho == nil) != (len(c.Live.Standings()) == 0) || (c.CandidateWho == nil) != (len(c.Candidate.Standings()) == 0) {
		x.Errorf("live %s is counted by %q, candidate %s by %q", word(c.Live), c.LiveWho, word(c.Candidate), c.CandidateWho)
	}
}

func (x *tried) get(path string, c weir.Keys) weir.Decision {
	x.Helper()
	d, err := x.d.Decide(context.Background(), weir.Request{Method: "GET", Path: path, Keys: c})
	if err != nil {
		x.Fatal(err)
	}
	return d
}

// take returns the records since its last call.
func (x *tried) take() (shadows, compared string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	shadows, compared = strings.Join(x.shadows, "; "), strings.Join(x.compared, "; ")
	x.shadows, x.compared = nil, nil
	return shadows, compared
}

func (x *tried) wantShadows(want string) {
	x.Helper()
	if got, _ := x.take(); got != want {
		x.Errorf("shadows are %q, want %q", got, want)
	}
}

// A shadow changes nothing that a caller can see, even if it is full.
func TestAShadowLimiterCountsAndReportsButChangesNothing(t *testing.T) {
	x := newTried(t, policyOf(
		routed(limiter("live", "3 per minute by ip"), "/a*"),
		shadowOf(routed(limiter("soon", "1 per hour by ip"), "/a*"))))
	x.want(x.get("/a", ip), "allowed 3 2 60 0")
	x.wantShadows("soon true")
	x.want(x.get("/a", ip), "allowed 3 1 60 0")
	x.wantShadows("soon false")
	x.want(x.get("/a", ip), "allowed 3 0 60 0")
	x.want(x.get("/a", ip), "refused 3 0 60 60")
	x.wantShadows("soon false; soon false") // also counts a request that live refuses
	x.clock.Advance(time.Hour)
	x.want(x.get("/a", ip), "allowed 3 2 60 0")
	x.wantShadows("soon true")
}

func TestAShadowFallsThroughToTheNextMatchingRoute(t *testing.T) {
	x := newTried(t, policyOf(
		routed(limiter("all", "9 per minute by ip"), "/*"),
		routed(limiter("b", "8 per minute by ip"), "/a/b*"),
		shadowOf(routed(limiter("s1", "1 per minute by ip"), "/a*")),
		shadowOf(routed(limiter("s2", "1 per minute by ip"), "GET /a/b/c")),
		shadowOf(routed(limiter("s3", "1 per minute by ip"), "/a/b/c", "/nowhere"))))
	for _, want := range []struct{ path, limiter, shadows string }{
		{"/x", "all", ""},
		{"/a", "all", "s1 true"},
		{"/a/b", "b", ""}, // an enforced s1 would not count it: b is more specific
		{"/a/b/c", "b", "s2 true; s3 true"},
		{"/nowhere", "all", "s3 false"},
	} {
		d := x.get(want.path, ip)
		if got := d.Binding().Limiter.Name; got != want.limiter {
			t.Errorf("%s is enforced by %s, want %s", want.path, got, want.limiter)
		}
		x.wantShadows(want.shadows)
	}
}

func TestARequestThatOnlyAShadowCoversIsUnlimited(t *testing.T) {
	x := newTried(t, policyOf(shadowOf(routed(limiter("s", "1 per minute by ip"), "/a"))))
	m := x.d.Match("GET", "", "/a")
	if m.Limiter() != nil || !m.HasTrials() {
		t.Errorf("limiter %v, trials %v", m.Limiter(), m.HasTrials())
	}
	for _, want := range []string{"s true", "s false"} {
		if d := x.get("/a", ip); !d.Allowed || d.Outcome != weir.Unlimited || len(d.Standings()) != 0 {
			t.Errorf("decision %+v", d)
		}
		x.wantShadows(want)
	}
	if m := x.d.Match("GET", "", "/b"); m.HasTrials() {
		t.Error("a trial is evaluated though nothing covers the request")
	}
}

func TestANamedShadowLimiterIsNotEnforced(t *testing.T) {
	x := newTried(t, policyOf(limiter("live", "5 per minute by ip"), shadowOf(limiter("s", "1 per minute by ip"))))
	for _, want := range []string{"s true", "s false"} {
		d, err := x.d.Decide(context.Background(), weir.Request{Limiters: []string{"s", "live"}, Keys: ip})
		if err != nil || !d.Allowed || len(d.Standings()) != 1 {
			t.Errorf("decision %+v, %v", d, err)
		}
		x.wantShadows(want)
	}
	if d := x.ask("live", weir.Peek, ip); d.Binding().Remaining != 3 {
		t.Errorf("remaining %d", d.Binding().Remaining)
	}
	x.wantShadows("") // a peek is not a request
}

func TestAShadowThatIsEnforcedLaterKeepsItsCount(t *testing.T) {
	s := routed(limiter("s", "2 per minute by ip"), "/a")
	x := newTried(t, policyOf(shadowOf(s)))
	x.get("/a", ip)
	if err := x.d.Swap(policyOf(s)); err != nil {
		t.Fatal(err)
	}
	x.want(x.get("/a", ip), "allowed 2 0 60 0")
}

func TestShadowRoutesThatCollide(t *testing.T) {
	s := func(name string) weir.Limiter { return shadowOf(routed(limiter(name, "1 per minute by ip"), "/a*")) }
	for _, c := range []struct {
		name   string
		policy weir.Policy
		want   string
	}{
		{"the same in a limiter of each mode", policyOf(s("s"), routed(limiter("l", "1 per minute by ip"), "/a*")), ""},
		{"the same in two shadows", policyOf(s("s"), s("r")), ""},
		{"twice in one", policyOf(shadowOf(routed(limiter("s", "1 per minute by ip"), "/a*", "/A*"))), "occurs twice"},
		{"five over one another", policyOf(s("a"), s("b"), s("c"), s("d"), shadowOf(routed(limiter("e", "1 per minute by ip"), "POST /a/x"))), "5 limiters in mode shadow"},
		{"five, apart", policyOf(s("a"), s("b"), s("c"), s("d"), shadowOf(routed(limiter("e", "1 per minute by ip"), "POST /b/x"))), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var messages []string
			for _, p := range c.policy.Problems(nil) {
				messages = append(messages, p.Message)
			}
			if got := strings.Join(messages, "\n"); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
		})
	}
}

// The walk for shadows finds the same limiter as the lookup without them.
func TestShadowsDoNotChangeTheEnforcedLimiter(t *testing.T) {
	store := newStore(t, storetest.StartManualClock())
	rapid.Check(t, func(t *rapid.T) {
		paths := []string{"/", "/a", "/a/", "/a/b", "/a/b/", "/a/b/c", "/ab", "/a.x", "/b", "/a/bc"}
		var live []weir.Limiter
		taken := map[string]bool{}
		for i := range rapid.IntRange(1, 5).Draw(t, "limiters") {
			r := rapid.SampledFrom([]string{"", "GET ", "POST "}).Draw(t, "method") + rapid.SampledFrom(paths).Draw(t, "path") + rapid.SampledFrom([]string{"", "*"}).Draw(t, "star")
			l := routed(limiter(fmt.Sprint("l", i), "1 per minute by ip"), r)
			if p := policyOf(append(slices.Clone(live), l)...); len(p.Problems(nil)) == 0 && !taken[r] {
				live, taken[r] = append(live, l), true
			}
		}
		with := append(slices.Clone(live), shadowOf(routed(limiter("s", "1 per minute by ip"), rapid.SampledFrom(paths).Draw(t, "shadow")+"*")))
		plain, err := weir.NewRoutes(policyOf(live...))
		if err != nil {
			t.Fatal(err)
		}
		shaded, err := weir.New(policyOf(with...), store, weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{"GET", "HEAD", "POST"} {
			for _, path := range append(paths, "/A/B/", "/a/b/d", "/a//b") {
				a, b := plain.Match(method, "", path), shaded.Match(method, "", path)
				if a.Route() != b.Route() || (a.Limiter() == nil) != (b.Limiter() == nil) {
					t.Fatalf("%s %s: %v without shadows, %v with", method, path, a.Route(), b.Route())
				}
			}
		}
	})
}

// If a store is slow, a shadow delays no request, and the number of concurrent
// shadow takes is bounded.
func TestARequestDoesNotWaitForItsShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowFor{Store: newStore(t, storetest.StartManualClock()), scope: "soon", wait: time.Minute}
		x := &tried{bench: &bench{TB: t}}
		d, err := weir.New(policyOf(
			routed(limiter("live", "1000 per minute by ip"), "/a"),
			shadowOf(routed(limiter("soon", "1 per minute by ip"), "/a"))), slow, weir.Options{OnShadow: x.onShadow})
		if err != nil {
			t.Fatal(err)
		}
		x.d = d
		start := time.Now()
		for range 300 {
			if d := x.get("/a", ip); !d.Allowed {
				t.Fatal("refused")
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("300 requests took %v", took)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		counts := map[string]int{}
		for _, s := range x.shadows {
			counts[s]++
		}
		if counts["soon true"] != 1 || counts["soon false"] != 255 || counts["soon skipped"] != 44 {
			t.Errorf("%v", counts)
		}
		d.Close(context.Background())
		x.get("/a", ip)
		if got := x.shadows[len(x.shadows)-1]; got != "soon skipped" {
			t.Errorf("after Close %s", got)
		}
	})
}

// slowFor is a remote store that is slow for one limiter.
type slowFor struct {
	weir.Store
	scope string
	wait  time.Duration
}

func (s *slowFor) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	if strings.Contains(string(charges[0].Key), s.scope) {
		time.Sleep(s.wait)
	}
	return s.Store.Take(ctx, charges, r)
}
