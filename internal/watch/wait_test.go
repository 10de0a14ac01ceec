package watch

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/memstore"
)

type address string

func (a address) AppendKey(dst []byte, source string) ([]byte, bool) {
	return append(dst, a...), source == "ip"
}

// TestARequestNeverWaitsForAReader holds all locks that a Snapshot can hold at a time, and more. A
// request that waited for one of them would hang.
func TestARequestNeverWaitsForAReader(t *testing.T) {
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ask := weir.Limiter{Name: "ask", Windows: []weir.Window{{Limit: 100, Per: time.Hour, Key: weir.Key{{"ip"}}}}}
	d, err := weir.New(weir.Policy{Limiters: []weir.Limiter{ask}}, store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := r.limiter("ask")
	l.callers.mu.Lock()
	for i := range r.shards[1:] {
		r.shards[1+i].mu.Lock()
	}
	const requests = len(shard{}.pending)
	for range requests {
		var scratch weir.Scratch
		var decision weir.Decision
		asked := weir.Request{Keys: address("192.0.2.1"), Limiters: []string{"ask"}, Scratch: &scratch}
		if err := d.DecideInto(context.Background(), &asked, &decision); err != nil {
			t.Fatal(err)
		}
		who := scratch.Who(&decision.Standings()[0])
		r.Observe(answer.Observation{Limiter: "ask", Outcome: answer.Admitted, Decision: &decision, Who: who, Caller: asked.Keys})
	}
	r.Observe(answer.Observation{Outcome: answer.Unlimited})
	for i := range r.shards[1:] {
		r.shards[1+i].mu.Unlock()
	}
	l.callers.mu.Unlock()

	s := r.Snapshot(Query{})
	if n := s.Limiters[0].Totals.Admitted; n != 1 {
		t.Errorf("%d unlimited requests, not 1", n)
	}
	if top := s.Limiters[1].Spending; len(top) != 1 || top[0].UnitsSince != int64(requests) {
		t.Errorf("what came while somebody read is lost: %+v, not one caller with %d units", top, requests)
	}
}

// TestALateShardErasesNothing adds counts of a second whose bucket another second has replaced.
func TestALateShardErasesNothing(t *testing.T) {
	l := &limiter{name: "ask"}
	l.add(1000+span, 1000+span, &[columns]uint32{admitted: 7})
	l.add(1000, 1000+span, &[columns]uint32{admitted: 1})
	if got := l.series(1000+span, 1)[admitted]; len(got) != 1 || got[0] != 7 {
		t.Errorf("the later second has %v, not 7", got)
	}
	if got := l.totals[admitted].Load(); got != 8 {
		t.Errorf("%d in all, not 8", got)
	}
}
