package redisstore

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/wait"
)

// requests sends a request every so often for a time, and returns how long the slowest one waited
// that was sent when the node knew its rate.
func (n *simNode) requests(every, length time.Duration, c weir.Charge) (slowest time.Duration) {
	var all sync.WaitGroup
	var mu sync.Mutex
	began := time.Now()
	for time.Since(began) < length {
		sent, counts := time.Now(), time.Since(began) > 5*time.Second
		all.Go(func() {
			n.take([]weir.Charge{c})
			mu.Lock()
			defer mu.Unlock()
			if counts {
				slowest = max(slowest, time.Since(sent))
			}
		})
		time.Sleep(every)
	}
	all.Wait()
	return slowest
}

// refilled runs requests of one node that is far from the store, with a limit and the time between
// two requests.
func refilled(t *testing.T, limit int64, every time.Duration) (slowest time.Duration, s *simStore, left int64) {
	synctest.Test(t, func(t *testing.T) {
		s = &simStore{fault: simSound, keys: make(map[string]*simKey)}
		n := &simNode{store: s, start: time.Now(), delay: 5 * time.Millisecond, even: true}
		n.boot(LeasesAuto)
		c := weir.Charge{Key: []byte("caller"), Limit: limit, Per: 60, Cost: 1}
		slowest = n.requests(every, 50*time.Second, c)
		n.end()
		synctest.Wait()
		left = limit - s.keys["caller"].open.admitted
		for _, text := range s.wrong {
			t.Error(text)
		}
	})
	return slowest, s, left
}

// A pocket is filled before it is empty: no request waits for it.
func TestAPocketIsFilledBeforeItIsEmpty(t *testing.T) {
	slowest, s, _ := refilled(t, 1e6, time.Millisecond)
	if slowest > 0 {
		t.Errorf("a request waited for %v", slowest)
	}
	if s.early == 0 || s.early > 200 {
		t.Errorf("%d refills in 50 s", s.early)
	}
}

// Requests that come seldom have their pockets filled by the one that finds it empty: a refill
// before that would ask the store more often.
func TestAQuietPocketIsFilledWhenItIsEmpty(t *testing.T) {
	if _, s, _ := refilled(t, 600, 100*time.Millisecond); s.early > 0 {
		t.Errorf("%d of %d questions were for a pocket that was not empty", s.early, s.asks)
	}
}

// Near the end of a budget every unit is given out, and refills become no more than answers are.
func TestRefillsEndWithTheBudget(t *testing.T) {
	_, s, left := refilled(t, 20_000, time.Millisecond)
	if left > 0 || s.refused == 0 {
		t.Errorf("%d units are left, and %d requests were refused", left, s.refused)
	}
	if s.early == 0 || s.early > 100 {
		t.Errorf("%d refills", s.early)
	}
}

// settle sends a settlement of a window, which pockets have to wait for.
func (n *simNode) settle(c *weir.Charge) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	o := &order{changes: []orderedChange{{hash: simHash(c), units: -1}}}
	n.now.Load().leases.settling(ctx, o)
	takes := 2 * n.delay
	if o.tells { // it waits for the batch before
		takes *= 2
	}
	_ = wait.For(ctx, takes)
	if o.leave != nil {
		o.leave()
	}
}

// A request that waits for a pocket, and for settlements, can miss its deadline, and so can all
// that wait behind it. Then the units go back, so that the next ones wait for nothing.
func TestRequestsDoNotMissTheirDeadlinesForLong(t *testing.T) {
	var offered, missed int64
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			s := &simStore{seed: seed, fault: simSound, keys: make(map[string]*simKey)}
			n := &simNode{store: s, start: time.Now(), delay: 20 * time.Millisecond, even: true}
			n.boot(LeasesAuto)
			c := weir.Charge{Key: []byte("caller"), Limit: 40000, Per: 3600, Cost: 10}
			var settlements sync.WaitGroup
			n.admitted = func() { settlements.Go(func() { n.settle(&c) }) }
			n.requests(time.Duration(2000+100*seed)*time.Microsecond, 8*time.Second, c)
			settlements.Wait()
			n.end()
			synctest.Wait()
			offered, missed = offered+s.offered, missed+s.offered-s.admitted-s.refused
		})
	}
	if missed > offered/20 {
		t.Errorf("%d of %d requests missed their deadline", missed, offered)
	}
}
