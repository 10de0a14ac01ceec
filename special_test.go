package weir_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// A grant outlives a policy under which one request costs more than it allows: no caller is turned into an error.
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
	b.want(b.ask("l", 0, ip), "allowed 100 0 60 0")
	b.want(b.ask("l", 0, ip), "refused 100 0 60 60")
	if _, err := b.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: ip, Cost: 11}); err == nil {
		t.Error("a request that could never be served is judged")
	}
	l.Cost = 1
	if err := b.d.Swap(policyOf(l)); err != nil {
		t.Fatal(err)
	}
	b.holds(ip, "10/5, 0 left, 60 s, granted for 3600 s over 100")
}
