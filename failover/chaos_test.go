package failover_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// A store fails in every way, all the time, under concurrent requests. Every
// locally counted unit is either given to the store once or reported as lost.
// Events alternate, and in the end the store is used again.
func TestEveryLocalUnitIsGivenOnceOrReportedLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "1000000 per day by ip"))
		store.slow.Store(int64(20 * time.Millisecond))
		var here atomic.Int64
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for i := range 8 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(3, uint64(i)))
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(random.IntN(10_000)) * time.Microsecond):
					}
					d, err := n.d.Decide(t.Context(), weir.Request{Limiters: []string{"l"}, Keys: who(random.IntN(500))})
					if err != nil {
						t.Error(err)
					}
					if d.Outcome == weir.CountedLocally && d.Allowed {
						here.Add(1)
					}
				}
			})
		}
		random := rand.New(rand.NewPCG(4, 4))
		modes := []int32{answers, answers, answers, fails, hangs, late, remembers}
		for range 300 {
			store.mode.Store(modes[random.IntN(len(modes))])
			store.gives.Store([]int32{answers, answers, answers, fails, hangs}[random.IntN(5)])
			<-time.After(time.Duration(random.IntN(2000)) * time.Millisecond)
		}
		store.mode.Store(answers)
		store.gives.Store(answers)
		<-time.After(5 * time.Second)
		close(stop)
		wg.Wait()
		n.ask("l", weir.Peek, ip)
		if h := n.over.Health(); h.Failing {
			t.Errorf("in the end Health is %+v", h)
		}
		n.outcome(weir.Counted, ip)
		var given, lost int64
		for i, e := range n.events() {
			if e.Failing != (i%2 == 0) {
				t.Fatalf("event %d of %d is %+v", i, len(n.events()), e)
			}
			given += e.Given
			lost += e.Lost
		}
		if given != store.units() || given+lost != here.Load() || given == 0 || lost == 0 || len(n.events()) < 10 {
			t.Errorf("counted here %d, given %d, lost %d, and the store has got %d, in %d events", here.Load(), given, lost, store.units(), len(n.events()))
		}
		if err := n.over.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
