package weir_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// A grant may outlive its policy, and one request may now cost more than the grant.
// That is not an error.
func TestAGrantBelowANewCostServesOneRequestAtATime(t *testing.T) {
	l := limiter("l", "100 per minute by ip")
	b := newBench(t, policyOf(l))
	if err := b.d.Grant(context.Background(), "l", ip, []int64{5}, b.unix(time.Hour)); err != nil {
		t.Fatal(err)
	}
	l.Cost = 10
	if err := b.d.Swap(policyOf(l)); err != nil {
		t.Fatal(err)
	}
	b.holds(ip, "0/10, 10 left, not open, granted for 3600 s over 100")
	b.want(b.ask("l", 0, ip), "allowed 10 0 60 0")
	b.want(b.ask("l", 0, ip), "refused 10 0 60 60")
	if _, err := b.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: ip, Cost: 11}); err == nil {
		t.Error("a request that could never be served is not an error")
	}
	l.Cost = 1
	if err := b.d.Swap(policyOf(l)); err != nil {
		t.Fatal(err)
	}
	b.holds(ip, "10/5, 0 left, 60 s, granted for 3600 s over 100")
}

// An override never changes a window that all callers share, even one of the same
// length.
func TestAnOverrideDoesNotChangeSharedWindows(t *testing.T) {
	l := limiter("l", "8 per minute by everyone", "4 per minute by ip")
	l.Overrides = []weir.Override{override("2 per minute for 10.0.0.1"), override("100 per minute for 10.0.0.2")}
	b := newBench(t, policyOf(l))
	ask := func(addr string) bool {
		keys := from(addr, "")
		keys.caller["everyone"] = ""
		d, err := b.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: keys})
		if err != nil {
			t.Fatal(err)
		}
		return d.Allowed
	}
	for i := range 4 {
		if !ask("192.0.2.1") {
			t.Fatalf("request %d is refused", i)
		}
	}
	if !ask("10.0.0.1") {
		t.Error("an address with two of its own is refused before its first, for what others have spent")
	}
	for range 3 {
		if !ask("10.0.0.2") {
			t.Error("an address with a hundred of its own is refused while all have some left")
		}
	}
	if ask("10.0.0.2") {
		t.Error("a ninth request passes a shared budget of eight")
	}
	l.Windows = l.Windows[:1]
	if err := b.d.Swap(policyOf(l)); err == nil || !strings.Contains(err.Error(), "everyone") {
		t.Errorf("an override of nothing but a shared budget: %v", err)
	}
}

// A route without a star hides shadows only at its own path. If a request's path is
// longer, it reaches all of them.
func TestTheLimitOfOverlappingShadows(t *testing.T) {
	var all []weir.Limiter
	for i, route := range []string{"/*", "/a*", "/a/*", "/a/b*"} {
		all = append(all, shadowOf(routed(limiter(string(rune('p'+i)), "9 per minute by ip"), route)))
	}
	all = append(all, routed(limiter("l", "9 per minute by ip"), "/a/b"))
	x := newTried(t, policyOf(all...))
	x.get("/a/bc", ip)
	x.wantShadows("s true; r true; q true; p true")
	five := shadowOf(routed(limiter("t", "9 per minute by ip"), "/a/b*"))
	if err := x.d.Swap(policyOf(append(all, five)...)); err == nil || !strings.Contains(err.Error(), "5 limiters in mode shadow") {
		t.Errorf("five shadows over /a/bc: %v", err)
	}
}
