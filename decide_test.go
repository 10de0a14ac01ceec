package weir_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/storetest"
)

func windows(specs ...string) []weir.Window {
	var ws []weir.Window
	for _, s := range specs {
		w, err := weir.ParseWindow(s)
		if err != nil {
			panic(err)
		}
		ws = append(ws, w)
	}
	return ws
}

// policyOf returns a policy of the given limiters.
func policyOf(l ...weir.Limiter) weir.Policy { return weir.Policy{Limiters: l} }

func limiter(name string, specs ...string) weir.Limiter {
	return weir.Limiter{Name: name, Windows: windows(specs...)}
}

func newStore(t testing.TB, clock storetest.Clock) *memstore.Store {
	t.Helper()
	store, err := memstore.New(memstore.Options{Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func newDecider(t testing.TB, p weir.Policy) *weir.Decider {
	t.Helper()
	d, err := weir.New(p, newStore(t, storetest.StartManualClock()), weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// caller returns key sources from a map.
type caller map[string]string

func (c caller) AppendKey(dst []byte, source string) ([]byte, bool) {
	v, ok := c[source]
	return append(dst, v...), ok
}

// A bench is a Decider with a clock that the test sets.
type bench struct {
	testing.TB
	clock *storetest.ManualClock
	d     *weir.Decider
}

func newBench(t testing.TB, p weir.Policy) *bench {
	t.Helper()
	clock := storetest.StartManualClock()
	d, err := weir.New(p, newStore(t, clock), weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, clock, d}
}

func (b *bench) ask(name string, cost int64, c caller) weir.Decision {
	b.Helper()
	d, err := b.d.Decide(context.Background(), weir.Request{Limiters: []string{name}, Cost: cost, Keys: c})
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// want compares a decision with "allowed|refused LIMIT REMAINING seconds-to-reset
// retry-after".
func (b *bench) want(d weir.Decision, want string) {
	b.Helper()
	s, word := d.Binding(), "allowed"
	if !d.Allowed {
		word = "refused"
	}
	if got := fmt.Sprintf("%s %d %d %d %d", word, s.Limit, s.Remaining, s.Reset-d.Now, d.RetryAfter()); got != want {
		b.Errorf("got %q, want %q", got, want)
	}
}

var ip = caller{"ip": "192.0.2.1"}

func TestABudgetIsRestoredExactlyAtReset(t *testing.T) {
	b := newBench(t, policyOf(limiter("l", "2 per minute by ip")))
	b.want(b.ask("l", 0, ip), "allowed 2 1 60 0")
	b.clock.Advance(20 * time.Second)
	b.want(b.ask("l", 0, ip), "allowed 2 0 40 0")
	b.want(b.ask("l", 0, ip), "refused 2 0 40 40")
	b.clock.Advance(39 * time.Second)
	b.want(b.ask("l", 0, ip), "refused 2 0 1 1")
	b.clock.Advance(time.Second)
	b.want(b.ask("l", 0, ip), "allowed 2 1 60 0")
}

// An allowed request reports the window with the smallest remainder. A refused
// request reports the exhausted window with the latest reset (D4).
func TestTheHeadersDescribeTheBindingWindow(t *testing.T) {
	for _, order := range [][]string{
		{"3 per minute by ip", "5 per hour by ip"},
		{"5 per hour by ip", "3 per minute by ip"},
	} {
		b := newBench(t, policyOf(limiter("l", order...)))
		b.want(b.ask("l", 0, ip), "allowed 3 2 60 0")
		b.want(b.ask("l", 0, ip), "allowed 3 1 60 0")
		b.want(b.ask("l", 0, ip), "allowed 3 0 60 0")
		b.want(b.ask("l", 0, ip), "refused 3 0 60 60") // the hour has two left and keeps them
		b.clock.Advance(time.Minute)
		b.want(b.ask("l", 0, ip), "allowed 5 1 3540 0")
		b.want(b.ask("l", 0, ip), "allowed 5 0 3540 0")
		b.want(b.ask("l", 0, ip), "refused 5 0 3540 3540")
		b.clock.Advance(time.Minute)
		b.want(b.ask("l", 0, ip), "refused 5 0 3480 3480")
	}
}

// If the remainders are equal, the window with the later reset is reported. The
// same holds if both windows refuse (D4).
func TestATieIsDecidedByTheLaterReset(t *testing.T) {
	for _, order := range [][]string{
		{"2 per minute by ip", "2 per hour by ip"},
		{"2 per hour by ip", "2 per minute by ip"},
	} {
		b := newBench(t, policyOf(limiter("l", order...)))
		b.want(b.ask("l", 0, ip), "allowed 2 1 3600 0")
		b.want(b.ask("l", 0, ip), "allowed 2 0 3600 0")
		b.want(b.ask("l", 0, ip), "refused 2 0 3600 3600")
	}
}

// If the cost does not fit, the request spends nothing, and its 429 has Remaining 0
// (D7, D4).
func TestACostThatDoesNotFitIsRefusedWithNothingRemaining(t *testing.T) {
	l := limiter("l", "10 per minute by ip")
	l.Cost = 4
	b := newBench(t, policyOf(l))
	b.want(b.ask("l", 0, ip), "allowed 10 6 60 0")
	b.want(b.ask("l", 0, ip), "allowed 10 2 60 0")
	b.want(b.ask("l", 0, ip), "refused 10 0 60 60")
	b.want(b.ask("l", 2, ip), "allowed 10 0 60 0")
}

func TestAPeekReadsWithoutSpending(t *testing.T) {
	b := newBench(t, policyOf(limiter("l", "3 per minute by ip")))
	b.want(b.ask("l", weir.Peek, ip), "allowed 3 3 60 0")
	b.want(b.ask("l", 0, ip), "allowed 3 2 60 0")
	b.clock.Advance(10 * time.Second)
	b.want(b.ask("l", weir.Peek, ip), "allowed 3 2 50 0")
}

// 31 agents of one address spend its hour. A request that the hour refuses spends
// nothing of its agent's minute (contract, section 8; D3).
func TestTheHourlyLimitOfAnAddressCoversItsAgents(t *testing.T) {
	b := newBench(t, policyOf(limiter("widget-init", "1000 per minute by ip+agent", "30000 per hour by ip")))
	who := func(agent int) caller { return caller{"ip": "192.0.2.1", "agent": fmt.Sprint(agent)} }
	for agent := range 30 {
		for range 1000 {
			if d := b.ask("widget-init", 0, who(agent)); !d.Allowed {
				t.Fatalf("agent %d was refused with %+v", agent, d.Binding())
			}
		}
	}
	b.want(b.ask("widget-init", 0, who(30)), "refused 30000 0 3600 3600")
	d := b.ask("widget-init", weir.Peek, who(30))
	for _, s := range d.Standings() {
		if s.Window.Limit == 1000 && s.Remaining != 1000 {
			t.Errorf("the refused agent has %d of its minute left, want all 1000", s.Remaining)
		}
	}
	b.clock.Advance(time.Hour)
	b.want(b.ask("widget-init", 0, who(30)), "allowed 1000 999 60 0")
}

// A caller without a session is counted by address. That count is separate from any
// session's (D16).
func TestWithoutASessionTheAddressIsCounted(t *testing.T) {
	b := newBench(t, policyOf(limiter("l", "1 per minute by session or ip"), limiter("bare", "1 per minute by session")))
	for _, name := range []string{"l", "bare"} { // "session" alone falls back too
		b.want(b.ask(name, 0, caller{"ip": "192.0.2.1", "session": "s"}), "allowed 1 0 60 0")
		b.want(b.ask(name, 0, ip), "allowed 1 0 60 0")
		b.want(b.ask(name, 0, ip), "refused 1 0 60 60")
		b.want(b.ask(name, 0, caller{"ip": "192.0.2.1", "session": "s"}), "refused 1 0 60 60")
		b.want(b.ask(name, 0, caller{"ip": "192.0.2.2"}), "allowed 1 0 60 0")
		// The empty value is a value of its own.
		b.want(b.ask(name, 0, caller{"ip": "192.0.2.1", "session": ""}), "allowed 1 0 60 0")
		b.want(b.ask(name, 0, caller{"ip": "x", "session": "192.0.2.1"}), "allowed 1 0 60 0")
	}
}

func TestSeveralLimitersAreAllChargedOrNone(t *testing.T) {
	b := newBench(t, policyOf(limiter("a", "5 per minute by ip"), limiter("b", "1 per minute by ip")))
	ask := func(names ...string) weir.Decision {
		d, err := b.d.Decide(t.Context(), weir.Request{Limiters: names, Keys: ip})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	b.want(ask("a", "b"), "allowed 1 0 60 0")
	b.want(ask("b", "a"), "refused 1 0 60 60")
	b.want(ask("a"), "allowed 5 3 60 0") // the refused request spent none of it
}

func TestCountsSurviveAChangeOfPolicy(t *testing.T) {
	b := newBench(t, policyOf(limiter("l", "5 per minute by ip")))
	swap := func(l weir.Limiter) {
		if err := b.d.Swap(policyOf(l)); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		b.ask("l", 0, ip)
	}
	b.want(b.ask("l", 0, ip), "refused 5 0 60 60")
	swap(limiter("l", "7 per minute by ip"))
	b.want(b.ask("l", 0, ip), "allowed 7 1 60 0")
	swap(limiter("l", "3 per minute by ip"))
	b.want(b.ask("l", weir.Peek, ip), "allowed 3 0 60 0")
	b.want(b.ask("l", 0, ip), "refused 3 0 60 60")
	swap(limiter("l", "3 per hour by ip")) // another length makes another window
	b.want(b.ask("l", 0, ip), "allowed 3 2 3600 0")
	swap(limiter("l", "3 per minute by ip+agent")) // another key too
	b.want(b.ask("l", 0, ip), "allowed 3 2 60 0")
}

func TestABadPolicyLeavesTheOldOneInForce(t *testing.T) {
	b := newBench(t, policyOf(limiter("l", "1 per minute by ip")))
	b.ask("l", 0, ip)
	err := b.d.Swap(weir.Policy{})
	var problems *weir.PolicyError
	if !errors.As(err, &problems) || len(problems.Problems) != 1 {
		t.Fatalf("an empty policy gave %v, want one problem", err)
	}
	b.want(b.ask("l", 0, ip), "refused 1 0 60 60")
}

func TestAnInvalidRequestIsAnError(t *testing.T) {
	b := newBench(t, policyOf(limiter("l", "5 per minute by ip")))
	for _, r := range []weir.Request{
		{Limiters: []string{"unknown"}},
		{Limiters: []string{"l", "l"}},
		{Limiters: []string{"l"}, Cost: 6},
		{Limiters: []string{"l"}, Cost: -2},
		{Limiters: []string{"l"}, Cost: weir.MaxLimit + 1},
	} {
		r.Keys = ip
		if d, err := b.d.Decide(t.Context(), r); err == nil || d.Allowed {
			t.Errorf("%+v gave %+v and no error", r, d)
		}
	}
	b.want(b.ask("l", 0, ip), "allowed 5 4 60 0")
}

func TestAnUncoveredRequestIsUnlimited(t *testing.T) {
	b := newBench(t, policyOf(limiter("l", "5 per minute by ip")))
	d, err := b.d.Decide(t.Context(), weir.Request{Method: "GET", Path: "/", Keys: ip})
	if err != nil || !d.Allowed || d.Outcome != weir.Unlimited || len(d.Standings()) != 0 {
		t.Errorf("got %+v, %v; want unlimited, without standings", d, err)
	}
}

// Concurrent requests over two windows leave exact counts (D3).
func TestConcurrentRequestsAreAdmittedExactly(t *testing.T) {
	b := newBench(t, policyOf(limiter("l", "100 per minute by agent", "300 per hour by ip")))
	var mu sync.Mutex
	admitted := map[string]int{}
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			agent := fmt.Sprint(i % 4)
			for range 50 {
				if b.ask("l", 0, caller{"ip": "192.0.2.1", "agent": agent}).Allowed {
					mu.Lock()
					admitted[agent]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for agent, n := range admitted {
		total += n
		if n > 100 {
			t.Errorf("agent %s was admitted %d times, over its 100", agent, n)
		}
	}
	if total != 300 {
		t.Errorf("%d requests were admitted, want exactly 300", total)
	}
}

// If the store is in the process, Decide allocates nothing, for any number of
// windows.
func TestDecideDoesNotAllocate(t *testing.T) {
	b := newBench(t, policyOf(
		weir.Limiter{Name: "one", Routes: []weir.Route{{Path: "/one"}}, Windows: windows("2000000000 per minute by ip")},
		weir.Limiter{Name: "two", Routes: []weir.Route{{Path: "/two"}}, Windows: windows("2000000000 per minute by ip+agent", "2000000000 per hour by ip")},
	))
	keys := &fixedKeys{}
	for _, path := range []string{"/one", "/two"} {
		if n := testing.AllocsPerRun(1000, func() {
			if d, err := b.d.Decide(context.Background(), weir.Request{Method: "GET", Path: path, Keys: keys}); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}); n >= 1 { // the race detector's pool drops some at random
			t.Errorf("%s: %v allocations a decision, want none", path, n)
		}
	}
}

type fixedKeys struct{}

func (*fixedKeys) AppendKey(dst []byte, source string) ([]byte, bool) {
	return append(dst, "192.0.2.1"...), true
}

func BenchmarkDecide(b *testing.B) {
	for _, specs := range [][]string{
		{"2000000000 per minute by ip"},
		{"2000000000 per minute by ip+agent", "2000000000 per hour by ip"},
	} {
		b.Run(fmt.Sprintf("%d-window", len(specs)), func(b *testing.B) {
			store, _ := memstore.New(memstore.Options{})
			d, err := weir.New(policyOf(weir.Limiter{Name: "l", Routes: []weir.Route{{Path: "/api/v1/widget/typing"}}, Windows: windows(specs...)}), store, weir.Options{})
			if err != nil {
				b.Fatal(err)
			}
			keys := &fixedKeys{}
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				d.Decide(ctx, weir.Request{Method: "POST", Path: "/api/v1/widget/typing", Keys: keys})
			}
		})
	}
}

// New reports all problems of a policy at once, each with the value and what is
// allowed.
func TestNewReportsAllProblemsAtOnce(t *testing.T) {
	bad := limiter("Widget Init", "5 per minute by ip")
	bad.Cost = 6
	second := limiter("twin", "5 per minute by ip", "6 per minute by ip", "7 per hour by nobody")
	second.Routes = []weir.Route{{Path: "/a"}, {Path: "/A/"}}
	third := limiter("twin", "5 per minute by ip")
	third.Routes = []weir.Route{{Path: "/a"}, {Method: "get", Path: "/b"}, {Path: "b"}}
	third.Windows[0].Limit = 0
	_, err := weir.New(policyOf(bad, second, third, weir.Limiter{Name: "empty"}), newStore(t, storetest.StartManualClock()),
		weir.Options{Sources: []weir.Source{{Name: "ip", Kind: weir.Address}, {Name: "agent"}}})
	if err == nil {
		t.Fatal("the policy was accepted")
	}
	for _, want := range []string{
		`name "Widget Init": lower-case`, "cost 6 exceeds the limit", `"6 per minute by ip" and "5 per minute by ip" have the same`,
		`key source "nobody" is unknown: ip, agent are allowed`, `route "/A/" occurs twice`, `name "twin" is taken`,
		`route "/a" is unreachable: limiter "twin" has "/a" already`, `method "get" is not in capital letters`,
		`path "b" does not begin with a slash`, "limit 0 is out of range", "no windows",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not contain %q:\n%v", want, err)
		}
	}
	var pe *weir.PolicyError
	if !errors.As(err, &pe) || len(pe.Problems) != 11 {
		t.Errorf("%d problems, want 11:\n%v", len(pe.Problems), err)
	}
}

func TestTheBindingWindowIsFoundAmongMany(t *testing.T) {
	b := newBench(t, policyOf(limiter("l", "9 per second by ip", "8 per minute by ip", "7 per hour by ip", "8 per day by ip")))
	d := b.ask("l", 0, ip)
	b.want(d, "allowed 7 6 3600 0")
	if n := len(d.Standings()); n != 4 {
		t.Errorf("%d standings, want 4", n)
	}
}
