package redisstore

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/weirlimit/weir"
)

// A pendingStore is a store without a server, for what is pending.
type pendingStore struct {
	*Store
	charges []weir.Charge
	hashes  []hash
}

func newPendingStore(t testing.TB) *pendingStore {
	t.Helper()
	s, err := newStore(Options{Addresses: []string{"redis.example.com:6379"}})
	if err != nil {
		t.Fatal(err)
	}
	p := &pendingStore{Store: s, charges: []weir.Charge{{Key: []byte("a"), Limit: 10, Per: 60, Cost: 1}}}
	h := newHasher("weir", make([]byte, minSecret))
	for i := range p.charges {
		p.hashes = append(p.hashes, h.hash(&p.charges[i]))
	}
	return p
}

// start begins a settlement that gives units of the window back.
func (p *pendingStore) start(units int64) *order {
	o := &order{link: new(link), done: make(chan struct{}), changes: []orderedChange{{id: p.hashes[0].id(), units: -units}}}
	p.begin(o)
	return o
}

// refused returns what a server answers that has counted so many units.
func refused(count int64) *weir.Receipt {
	r := new(weir.Receipt)
	r.Used[0] = weir.Used{Count: count, Reset: 60}
	return r
}

func (p *pendingStore) succeeds(ctx context.Context, all *coming, count int64) bool {
	return all.await(ctx, &p.pending, p.charges, p.hashes, refused(count))
}

// A refused take waits for the settlements that were under way when it began or that began since,
// if it fits with them.
func TestARefusedTakeWaitsForUnitsThatComeBackMeanwhile(t *testing.T) {
	p := newPendingStore(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if none := p.coming(p.charges, p.hashes); p.succeeds(gone, &none, 10) {
		t.Error("nothing comes back, and it is sent again")
	}
	first, second := p.start(1), p.start(2)
	all := p.coming(p.charges, p.hashes)
	since := p.start(5)
	if p.succeeds(gone, &all, 10) {
		t.Error("it does not wait")
	}
	if p.succeeds(t.Context(), &all, 18) { // it would wait forever
		t.Error("it does not fit, and is sent again")
	}
	p.finish(second)
	p.finish(since)
	if p.succeeds(gone, &all, 10) {
		t.Error("it does not wait for the first")
	}
	p.finish(first)
	if !p.succeeds(gone, &all, 17) {
		t.Error("all has come back, and it is not sent again")
	}
}

// The units of a settlement may have gone to a caller whose own came back after the server had
// refused this take: it is sent again, though nothing is under way any more.
func TestATakeIsSentAgainAfterASettlementThatBeganAndEndedMeanwhile(t *testing.T) {
	p := newPendingStore(t)
	p.finish(p.start(3)) // before it
	all := p.coming(p.charges, p.hashes)
	if p.succeeds(t.Context(), &all, 10) {
		t.Error("what came back before it began lets it be sent again")
	}
	p.finish(p.start(1))
	if !p.succeeds(t.Context(), &all, 10) {
		t.Error("it is not sent again")
	}
	if p.succeeds(t.Context(), &all, 11) {
		t.Error("it does not fit, and is sent again")
	}
}

// Whoever waits is woken by the last settlement, in whichever order they end.
func TestARefusedTakeIsWokenByTheLastSettlement(t *testing.T) {
	for last := range 3 {
		synctest.Test(t, func(t *testing.T) {
			p := newPendingStore(t)
			orders := []*order{p.start(1), p.start(1), p.start(1)}
			all := p.coming(p.charges, p.hashes)
			var again, woken bool
			go func() { again, woken = p.succeeds(t.Context(), &all, 12), true }()
			for i, o := range orders {
				if i != last {
					p.finish(o)
				}
			}
			if synctest.Wait(); woken {
				t.Errorf("woken before settlement %d", last)
			}
			p.finish(orders[last])
			if synctest.Wait(); !woken || !again {
				t.Errorf("woken %t, sent again %t", woken, again)
			}
			if len(p.pending.all) > 0 {
				t.Errorf("%d windows are still pending", len(p.pending.all))
			}
		})
	}
}

// What a take asks does not grow with the settlements under way.
func TestATakeCopiesNoSettlements(t *testing.T) {
	p := newPendingStore(t)
	for range 1000 {
		p.start(1)
	}
	var all coming
	if n := testing.AllocsPerRun(10, func() { all = p.coming(p.charges, p.hashes) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if all.units[0] != 1000 {
		t.Errorf("%d units come back, want 1000", all.units[0])
	}
}

// A take of a window with this many settlements under way, and one settlement more.
func BenchmarkPending(b *testing.B) {
	for _, n := range []int{1, 100, 5000} {
		p := newPendingStore(b)
		for range n {
			p.start(1)
		}
		b.Run(fmt.Sprintf("take/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.coming(p.charges, p.hashes)
			}
		})
		b.Run(fmt.Sprintf("settle/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.finish(p.start(1))
			}
		})
	}
}
