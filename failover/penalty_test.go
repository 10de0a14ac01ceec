package failover_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// A penalty that begins in an outage is given to the store, which then keeps it for all nodes, with
// the same end. Gates owe nothing.
func TestAPenaltyOutlastsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter("l", "1 per second by ip")
		l.Penalty = weir.Penalty{After: 3, Per: time.Minute, For: time.Hour}
		store := newCommon(t)
		n, other := newNode(t, store, l), newNode(t, store, l)
		store.mode.Store(fails)
		n.ask("l", 0, ip)
		for range 2 {
			if d := n.ask("l", 0, ip); d.Allowed || d.Binding().Penalty {
				t.Fatalf("%+v", d.Binding())
			}
		}
		d := n.ask("l", 0, ip)
		end := d.Binding().Reset
		if !d.Binding().Penalty || d.Outcome != weir.CountedLocally || end != d.Now+3600 {
			t.Fatalf("the third refusal: %v, %+v at %d", d.Outcome, d.Binding(), d.Now)
		}
		one := weir.Charge{Key: []byte("\x01lk\x02ip"), Scope: 3, Subject: 6, Limit: 5, Per: 3600, Cost: 1}
		gate, two := one, one
		gate.Cost, two.Key = weir.Gate, []byte("\x01mk\x02ip")
		for _, c := range [][]weir.Charge{{one}, {two, gate}} {
			if err := n.over.Take(t.Context(), c, new(weir.Receipt)); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(10 * time.Second)
		store.mode.Store(answers)
		for range 5 { // one of them begins the reconciliation
			<-time.After(2 * time.Second)
			n.over.Probe(t.Context())
			synctest.Wait()
		}
		for _, node := range []*node{n, other} {
			if d := node.ask("l", 0, ip); !d.Binding().Penalty || d.Outcome != weir.Counted || d.Binding().Reset != end {
				t.Fatalf("after the outage: %v, %+v, want the penalty until %d", d.Outcome, d.Binding(), end)
			}
		}
		for _, s := range store.given {
			if s.Used.Count < 1 {
				t.Errorf("%d units were given", s.Used.Count)
			}
		}
	})
}
