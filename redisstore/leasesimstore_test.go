package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/lease"
	"github.com/weirlimit/weir/internal/wait"
)

// A simWindow is one window, from its first unit to its end.
type simWindow struct {
	from     int64 // Unix ms of its first unit, after any reset by an operator
	reset    int64
	count    int64
	admitted int64
}

type simKey struct {
	open      *simWindow
	windows   []*simWindow
	mark      int64 // of the last reset by an operator, in Unix ms
	markUntil int64 // Unix seconds
}

// generation is the mark of the last reset, until that ends.
func (k *simKey) generation(now time.Time) int64 {
	if now.Unix() >= k.markUntil {
		return 0
	}
	return k.mark
}

// reset is reset.lua.
func (k *simKey) reset() {
	if k.open != nil {
		k.mark, k.markUntil = max(time.Now().UnixMilli(), k.mark+1), k.open.reset
	}
	k.open = nil
}

// A simStore is the store. The clock of the bubble is its own.
type simStore struct {
	seed  uint64
	fault simFault
	mu    sync.Mutex
	keys  map[string]*simKey
	wrong []string

	asks, refused, offered, admitted, returns, away, early int64
}

func (s *simStore) fail(form string, args ...any) {
	if len(s.wrong) < 5 {
		s.wrong = append(s.wrong, fmt.Sprintf(form, args...))
	}
}

// below returns a duration above 0, at most d.
func below(r *rand.Rand, d time.Duration) time.Duration { return 1 + time.Duration(r.Int64N(int64(d))) }

func (s *simStore) numbers() [7]int64 {
	return [...]int64{s.asks, s.refused, s.offered, s.admitted, s.returns, s.away, s.early}
}

func (s *simStore) count(what *int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*what++
}

func (s *simStore) key(c *weir.Charge) *simKey {
	k := s.keys[string(c.Key)]
	if k == nil {
		k = new(simKey)
		s.keys[string(c.Key)] = k
	}
	if now := time.Now(); k.open != nil && now.Unix() >= k.open.reset {
		k.open = nil
	}
	return k
}

// awaitOpened waits, for some seconds at most, until the window of a charge has just been opened.
// If it is reset then, the next one may end in the same second.
func (s *simStore) awaitOpened(ctx context.Context, c *weir.Charge) {
	for range 500 {
		s.mu.Lock()
		k := s.key(c)
		opened := k.open != nil && time.Now().UnixMilli()-k.open.from < 200
		s.mu.Unlock()
		if opened || wait.For(ctx, 20*time.Millisecond) != nil {
			return
		}
	}
}

// take is lease.lua.
func (s *simStore) take(t *leaseTake) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	*t.r = weir.Receipt{Allowed: true, Now: now.Unix(), Ticket: weir.Ticket{At: now.UnixMilli(), Epoch: t.epoch}}
	for i := range t.charges {
		c, k := &t.charges[i], s.key(&t.charges[i])
		if t.early && (k.open == nil || k.open.reset != t.opened[i]) {
			return errNotOpen
		}
		if k.open != nil {
			t.r.Used[i] = weir.Used{Count: k.open.count, Reset: k.open.reset}
		}
		if c.Cost > 0 && t.r.Used[i].Count+c.Cost > c.Limit {
			t.r.Allowed = false
		}
	}
	if !t.r.Allowed {
		return nil
	}
	for i := range t.charges {
		c, k := &t.charges[i], s.key(&t.charges[i])
		if k.open == nil && c.Cost > 0 {
			k.open = &simWindow{from: max(now.UnixMilli(), k.mark+1), reset: now.Unix() + c.Per}
			k.windows = append(k.windows, k.open)
		}
		if k.open == nil {
			continue
		}
		k.open.count += c.Cost
		t.r.Used[i] = weir.Used{Count: k.open.count, Reset: k.open.reset}
		t.lots[i] = lease.Lot{Window: lease.Window{Reset: k.open.reset, Generation: k.generation(now), Epoch: t.epoch}, Limit: c.Limit, At: max(t.r.Ticket.At, k.mark+1)}
		if w := t.wishes[i]; t.marked {
			grant := min(w.Units, (c.Limit-k.open.count)*w.Part/1000)
			if s.fault == simUncut {
				grant = w.Units
			}
			if grant < w.Least {
				grant = 0
			}
			if s.fault != simUncharged {
				k.open.count += grant
			}
			if t.lots[i].Units = grant; grant > 0 && k.generation(now) != 0 && s.fault != simMarkEnds {
				k.markUntil = max(k.markUntil, k.open.reset)
			}
		}
		s.keeps(t, i, k.open)
		t.lots[i].Count = t.r.Used[i].Count + t.lots[i].Units
	}
	return nil
}

// keeps fails if a node will take an answer for one of another window than that of its units, which
// it then drops.
func (s *simStore) keeps(t *leaseTake, i int, w *simWindow) {
	e := t.entries[i]
	if e == nil {
		return
	}
	epoch, _ := e.pocket.Lasts()
	e.pocket.Lock()
	defer e.pocket.Unlock()
	units, _ := e.pocket.Of(w.reset)
	charged, generation := e.pocket.Charged()
	if units > 0 && epoch == t.epoch && charged >= w.from && generation != t.lots[i].Window.Generation {
		s.fail("%d units of the window that ends at %d will be dropped: they are of generation %d, and the answer is of %d", units, w.reset, generation, t.lots[i].Window.Generation)
	}
}

// giveBack is settle.lua.
func (s *simStore) giveBack(c string, l lease.Lot) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returns++
	k := s.keys[c]
	w := k.open
	if w == nil || time.Now().Unix() >= w.reset {
		return 0, false
	}
	if s.fault != simReturnAnyReset && w.reset != l.Window.Reset || s.fault != simReturnAnyGen && l.At <= k.mark {
		return 0, false
	}
	w.count -= l.Units
	if w.count < w.admitted {
		s.fail("a return of %d leaves a count of %d, and %d are admitted", l.Units, w.count, w.admitted)
	}
	return w.count, true
}

// spent counts what a request was admitted with, in the window that was charged.
func (s *simStore) spent(c *weir.Charge, used weir.Used, at int64, leased bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if leased && now.Unix() >= used.Reset {
		s.fail("a unit was given out at %v, after the reset %v", now, time.Unix(used.Reset, 0))
	}
	// The time is that of the earliest charge in any of the windows.
	var of *simWindow
	for _, w := range slices.Backward(s.keys[string(c.Key)].windows) {
		if w.reset == used.Reset {
			if of = w; at >= w.from {
				break
			}
		}
	}
	if of == nil {
		s.fail("a unit of no window was given out: %+v", used)
		return
	}
	if of.admitted += c.Cost; of.admitted > c.Limit {
		s.fail("%d units of %d were admitted", of.admitted, c.Limit)
	}
}
