package weir_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// noted has what OnCrossed was called with.
type noted struct {
	mu    sync.Mutex
	lines []string
}

func (n *noted) note(c weir.Crossed) {
	n.mu.Lock()
	defer n.mu.Unlock()
	line := fmt.Sprintf("%s %d%%: %d of %d", c.Standing.Limiter.Name, c.Percent, c.Standing.Count, c.Standing.Limit)
	if c.Shadow {
		line += ", shadow"
	}
	if len(c.Who) == 0 || c.Shadow != (c.Keys == nil) {
		line += ", of nobody"
	}
	n.lines = append(n.lines, line)
}

func (n *noted) want(t *testing.T, want ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.lines, want) {
		t.Errorf("reported %q\nwant %q", n.lines, want)
	}
	n.lines = nil
}

func notifying(name string, percents []int64, specs ...string) weir.Limiter {
	l := limiter(name, specs...)
	l.Notify = percents
	return l
}

func newNoted(t *testing.T, p weir.Policy) (*bench, *noted) {
	t.Helper()
	clock, n := storetest.StartManualClock(), new(noted)
	d, err := weir.New(p, newStore(t, clock), weir.Options{OnCrossed: n.note})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, clock, d}, n
}

func TestExactlyTheRequestThatReachesAPercentageIsReported(t *testing.T) {
	b, n := newNoted(t, policyOf(notifying("l", []int64{1, 75, 90, 100}, "10 per minute by ip")))
	want := map[int][]string{1: {"l 1%: 1 of 10"}, 8: {"l 75%: 8 of 10"}, 9: {"l 90%: 9 of 10"}, 10: {"l 100%: 10 of 10"}}
	for window := range 2 {
		for i := 1; i <= 15; i++ { // those after the tenth are refused
			b.ask("l", 0, ip)
			n.want(t, want[i]...)
		}
		b.ask("l", weir.Peek, ip)
		n.want(t)
		if window == 0 {
			b.clock.Advance(time.Minute)
		}
	}
}

func TestACostThatJumpsOverPercentagesReportsEachInOrder(t *testing.T) {
	b, n := newNoted(t, policyOf(notifying("l", []int64{75, 90, 100}, "100 per minute by ip", "1000 per hour by ip")))
	b.ask("l", 74, ip)
	n.want(t)
	b.ask("l", 26, ip)
	n.want(t, "l 75%: 100 of 100", "l 90%: 100 of 100", "l 100%: 100 of 100")
}

func TestAnExemptCallerReportsNothing(t *testing.T) {
	l := notifying("l", []int64{50}, "2 per minute by ip")
	l.Exempt = []weir.Who{whom("token vip")}
	b, n := newNoted(t, policyOf(l))
	b.ask("l", 0, caller{"ip": "1", "token": "vip"})
	n.want(t)
	b.ask("l", 0, caller{"ip": "2"})
	n.want(t, "l 50%: 1 of 2")
}

func TestALimiterInShadowModeReportsWithAMark(t *testing.T) {
	l := notifying("l", []int64{100}, "1 per minute by ip")
	l.Mode = weir.Shadow
	b, n := newNoted(t, policyOf(l))
	for range 3 {
		b.ask("l", 0, ip)
	}
	n.want(t, "l 100%: 1 of 1, shadow")
}

// A candidate policy has no effect, so it reports nothing.
func TestACandidateReportsNothing(t *testing.T) {
	b, n := newNoted(t, policyOf(limiter("l", "9 per minute by ip")))
	p := policyOf(notifying("l", []int64{100}, "1 per minute by ip"))
	if err := b.d.SetCandidate(&p, newStore(t, b.clock)); err != nil {
		t.Fatal(err)
	}
	b.ask("l", 0, ip)
	n.want(t)
}

// However many requests run at once, one of them reaches a percentage.
func TestConcurrentRequestsReportAPercentageOnce(t *testing.T) {
	b, n := newNoted(t, policyOf(notifying("l", []int64{75, 100}, "1000 per minute by ip")))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 250 {
				if _, err := b.d.Decide(t.Context(), weir.Request{Limiters: []string{"l"}, Keys: ip}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	slices.Sort(n.lines) // two requests may report in the other order
	n.want(t, "l 100%: 1000 of 1000", "l 75%: 750 of 1000")
}

func TestNotifyIsFreeForRequestsThatReachNothing(t *testing.T) {
	d, err := weir.New(policyOf(notifying("l", []int64{75, 90, 100}, "2000000000 per minute by ip")), newStore(t, storetest.StartManualClock()),
		weir.Options{OnCrossed: func(weir.Crossed) { t.Error("reported") }})
	if err != nil {
		t.Fatal(err)
	}
	var scratch weir.Scratch
	var out weir.Decision
	r := weir.Request{Limiters: []string{"l"}, Keys: weir.Keys(ip), Scratch: &scratch}
	if allocated := testing.AllocsPerRun(100, func() { _ = d.DecideInto(t.Context(), &r, &out) }); allocated > 0 {
		t.Errorf("%v allocations a request", allocated)
	}
}

func BenchmarkNotify(b *testing.B) {
	for _, percents := range [][]int64{nil, {75, 90, 100}} {
		b.Run(fmt.Sprint(len(percents)), func(b *testing.B) {
			d, err := weir.New(policyOf(notifying("l", percents, "2000000000 per minute by ip")), newStore(b, storetest.StartManualClock()),
				weir.Options{OnCrossed: func(weir.Crossed) {}})
			if err != nil {
				b.Fatal(err)
			}
			var scratch weir.Scratch
			var out weir.Decision
			r := weir.Request{Limiters: []string{"l"}, Keys: weir.Keys(ip), Scratch: &scratch}
			b.ReportAllocs()
			for b.Loop() {
				_ = d.DecideInto(b.Context(), &r, &out)
			}
		})
	}
}
