package weir_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
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

// A tried is a decider whose shadows and comparisons are written down.
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
	case d.Allowed:
		return "allowed by " + d.Binding().Limiter.Name
	}
	return "refused by " + d.Binding().Limiter.Name
}

func (x *tried) onCandidate(c weir.Compared) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.compared = append(x.compared, word(c.Live)+", "+word(c.Candidate))
	if (c.LiveWho == nil) != (c.Live.Outcome == weir.Unlimited) || (c.CandidateWho == nil) != (c.Candidate.Outcome == weir.Unlimited) {
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

// take returns what was written down since the last time.
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
		x.Errorf("shadows said %q, want %q", got, want)
	}
}

// Nothing that a caller can see comes from it, not even where it is full.
func TestAShadowLimiterCountsReportsAndChangesNothing(t *testing.T) {
	x := newTried(t, policyOf(
		routed(limiter("live", "3 per minute by ip"), "/a*"),
		shadowOf(routed(limiter("soon", "1 per hour by ip"), "/a*"))))
	x.want(x.get("/a", ip), "allowed 3 2 60 0")
	x.wantShadows("soon true")
	x.want(x.get("/a", ip), "allowed 3 1 60 0")
	x.wantShadows("soon false")
	x.want(x.get("/a", ip), "allowed 3 0 60 0")
	x.want(x.get("/a", ip), "refused 3 0 60 60")
	x.wantShadows("soon false; soon false") // and a request that the live one refuses is judged too
	x.clock.Advance(time.Hour)
	x.want(x.get("/a", ip), "allowed 3 2 60 0")
	x.wantShadows("soon true")
}

func TestAShadowLimitersRouteStandsUnderTheNextOneThatMatches(t *testing.T) {
	x := newTried(t, policyOf(
		routed(limiter("all", "9 per minute by ip"), "/*"),
		routed(limiter("b", "8 per minute by ip"), "/a/b*"),
		shadowOf(routed(limiter("s1", "1 per minute by ip"), "/a*")),
		shadowOf(routed(limiter("s2", "1 per minute by ip"), "GET /a/b/c")),
		shadowOf(routed(limiter("s3", "1 per minute by ip"), "/a/b/c", "/nowhere"))))
	for _, want := range []struct{ path, limiter, shadows string }{
		{"/x", "all", ""},
		{"/a", "all", "s1 true"},
		{"/a/b", "b", ""}, // s1, were it enforced, would not see this one: b is more specific
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

func TestWhatOnlyAShadowCoversIsUnlimited(t *testing.T) {
	x := newTried(t, policyOf(shadowOf(routed(limiter("s", "1 per minute by ip"), "/a"))))
	m := x.d.Match("GET", "/a")
	if m.Limiter() != nil || !m.HasTrials() {
		t.Errorf("limiter %v, trials %v", m.Limiter(), m.HasTrials())
	}
	for _, want := range []string{"s true", "s false"} {
		if d := x.get("/a", ip); !d.Allowed || d.Outcome != weir.Unlimited || len(d.Standings()) != 0 {
			t.Errorf("decision %+v", d)
		}
		x.wantShadows(want)
	}
	if m := x.d.Match("GET", "/b"); m.HasTrials() {
		t.Error("something is evaluated where nothing covers the request")
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
	x.wantShadows("") // a peek is no request
}

func TestAShadowThatIsEnforcedLaterGoesOnCounting(t *testing.T) {
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
			var said []string
			for _, p := range c.policy.Problems(nil) {
				said = append(said, p.Message)
			}
			if got := strings.Join(said, "\n"); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
		})
	}
}

// The walk that shadows need finds what the look-up without them finds.
func TestWithAndWithoutShadowsTheSameLimiterIsEnforced(t *testing.T) {
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
				a, b := plain.Match(method, path), shaded.Match(method, path)
				if a.Route() != b.Route() || (a.Limiter() == nil) != (b.Limiter() == nil) {
					t.Fatalf("%s %s: %v without shadows, %v with", method, path, a.Route(), b.Route())
				}
			}
		}
	})
}

// A slow store delays nobody for the sake of a shadow, and is not asked by more than a bounded
// number at a time.
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

// slowFor is a store elsewhere that takes its time for one limiter.
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

func TestACandidateIsComparedAndNeverEnforced(t *testing.T) {
	x := newTried(t, policyOf(routed(limiter("live", "2 per minute by ip"), "/a*"), routed(limiter("gone", "1 per minute by ip"), "/gone")))
	x.get("/a", ip)
	if _, compared := x.take(); compared != "" {
		t.Errorf("compared %q before there was a candidate", compared)
	}
	candidate := policyOf(routed(limiter("live", "1 per minute by ip"), "/a*"), routed(limiter("new", "1 per minute by ip"), "/new"))
	if err := x.d.SetCandidate(&candidate, newStore(t, x.clock)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ path, live, compared string }{
		{"/a", "allowed 2 0 60 0", "allowed by live, allowed by live"},
		{"/a", "refused 2 0 60 60", "refused by live, refused by live"},
		{"/gone", "allowed 1 0 60 0", "allowed by gone, unlimited"},
		{"/gone", "refused 1 0 60 60", "refused by gone, unlimited"},
	} {
		x.want(x.get(want.path, ip), want.live)
		if _, got := x.take(); got != want.compared {
			t.Errorf("%s: %q, want %q", want.path, got, want.compared)
		}
	}
	for _, want := range []string{"unlimited, allowed by new", "unlimited, refused by new"} {
		if d := x.get("/new", ip); !d.Allowed || d.Outcome != weir.Unlimited {
			t.Errorf("%+v", d)
		}
		if _, got := x.take(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	x.ask("live", weir.Peek, ip)
	if _, got := x.take(); got != "" {
		t.Errorf("a peek was compared: %q", got)
	}
	x.ask("live", 0, caller{"ip": "192.0.2.9"})
	if _, got := x.take(); got != "allowed by live, allowed by live" {
		t.Errorf("by name: %q", got)
	}
	if err := x.d.SetCandidate(nil, nil); err != nil {
		t.Fatal(err)
	}
	x.get("/a", ip)
	if _, got := x.take(); got != "" {
		t.Errorf("compared %q after the candidate was taken away", got)
	}
}

func TestACandidateThatIsWrongChangesNothing(t *testing.T) {
	x := newTried(t, policyOf(routed(limiter("live", "2 per minute by ip"), "/a*")))
	good := policyOf(routed(limiter("live", "1 per minute by ip"), "/a*"))
	if err := x.d.SetCandidate(&good, newStore(t, x.clock)); err != nil {
		t.Fatal(err)
	}
	var problems *weir.PolicyError
	if err := x.d.SetCandidate(&weir.Policy{}, newStore(t, x.clock)); !errors.As(err, &problems) {
		t.Errorf("an empty candidate: %v", err)
	}
	if err := x.d.SetCandidate(&good, &slowFor{}); err == nil {
		t.Error("a store elsewhere is accepted")
	}
	x.get("/a", ip)
	if _, got := x.take(); got != "allowed by live, allowed by live" {
		t.Errorf("%q", got)
	}
}

// at is a caller with an exact address.
type at struct {
	caller
	addr netip.Addr
}

func (a at) Addr() netip.Addr { return a.addr }

func from(addr, token string) at {
	c := caller{"ip": addr}
	if token != "" {
		c["token"] = token
	}
	return at{c, netip.MustParseAddr(addr)}
}

func whom(s string) weir.Who {
	w, err := weir.ParseWho(s)
	if err != nil {
		panic(err)
	}
	return w
}

func override(s string) weir.Override {
	o, err := weir.ParseOverride(s)
	if err != nil {
		panic(err)
	}
	return o
}

func TestAnExemptCallerIsCountedAndNeverRefused(t *testing.T) {
	l := limiter("l", "2 per minute by ip")
	l.Exempt = []weir.Who{whom("10.0.0.0/8"), whom("token vip")}
	b := newBench(t, policyOf(l))
	for _, vip := range []weir.Keys{from("10.1.2.3", ""), from("192.0.2.9", "vip")} {
		for i := range 5 {
			d, err := b.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: vip})
			if err != nil || !d.Allowed || !d.Exempt || d.Binding().Count != int64(i+1) {
				t.Fatalf("request %d: %+v, %v", i+1, d, err)
			}
			b.want(d, "allowed 2 2 60 0") // so many will be admitted, whatever was sent before
		}
	}
	stranger := from("192.0.2.9", "other") // counts in the very window that vip has filled
	d, err := b.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: stranger})
	if err != nil || d.Allowed || d.Exempt {
		t.Errorf("a stranger at a full address: %+v, %v", d, err)
	}
	// Keys that know their address only as a key source fit no network: it may stand for a whole
	// one.
	d, err = b.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: caller{"ip": "10.1.2.3"}})
	if err != nil || d.Exempt {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestOfSeveralOverridesTheClosestHolds(t *testing.T) {
	l := limiter("l", "10 per minute by ip", "100 per hour by ip")
	l.Overrides = []weir.Override{
		override("20 per minute for 10.0.0.0/8"), override("200 per hour for 10.0.0.0/8"),
		override("30 per minute for 10.1.0.0/16"), override("5 per minute for 10.1.2.3"),
		override("40 per minute for token vip"), override("60 per minute for 2001:db8::/32"),
	}
	b := newBench(t, policyOf(l))
	for _, want := range []struct {
		keys         weir.Keys
		minute, hour int64
	}{
		{from("192.0.2.1", ""), 10, 100},
		{from("10.9.9.9", ""), 20, 200},
		{from("10.1.9.9", ""), 30, 200},
		{from("10.1.2.3", ""), 5, 200},
		{from("10.1.2.3", "vip"), 40, 200},
		{from("192.0.2.2", "vip"), 40, 100},
		{from("2001:db8::1", ""), 60, 100},
		{from("2001:db9::1", ""), 10, 100},
		{from("::ffff:10.9.9.8", ""), 20, 200},
	} {
		d, err := b.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: want.keys, Cost: weir.Peek})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range d.Standings() {
			limit := want.minute
			if s.Window.Per == time.Hour {
				limit = want.hour
			}
			if s.Limit != limit || s.Remaining != limit {
				t.Errorf("%v: %d of %d left of %v, want %d", want.keys, s.Remaining, s.Limit, s.Window, limit)
			}
		}
	}
}

func TestAnOverrideIsExact(t *testing.T) {
	l := limiter("l", "2 per minute by ip")
	l.Overrides = []weir.Override{override("4 per minute for token vip"), override("1 per minute for 192.0.2.8")}
	b := newBench(t, policyOf(l))
	admitted := func(keys weir.Keys) (n int) {
		for range 10 {
			d, err := b.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: keys})
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				n++
			}
		}
		return n
	}
	if vip, slow, other := admitted(from("192.0.2.7", "vip")), admitted(from("192.0.2.8", "")), admitted(from("192.0.2.9", "")); vip != 4 || slow != 1 || other != 2 {
		t.Errorf("admitted %d, %d and %d", vip, slow, other)
	}
}

// An exempt caller is not refused where nobody can count either.
func TestAnExemptCallerPassesWhileTheStoreIsSilent(t *testing.T) {
	l := limiter("l", "2 per minute by ip")
	l.OnStoreFailure, l.Exempt = weir.FailDeny, []weir.Who{whom("10.0.0.0/8")}
	d, err := weir.New(policyOf(l), &slowFor{Store: silent{}}, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]weir.Outcome{"10.1.2.3": weir.AllowedUncounted, "192.0.2.1": weir.StoreUnavailable} {
		got, err := d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: from(addr, "")})
		if err != nil || got.Outcome != want || got.Allowed != (want == weir.AllowedUncounted) {
			t.Errorf("%s: %+v, %v", addr, got, err)
		}
	}
}

// silent never answers.
type silent struct{}

func (silent) Take(context.Context, []weir.Charge, *weir.Receipt) error {
	return errors.New("nobody there")
}
