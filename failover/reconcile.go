package failover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
)

const (
	giveWindows = 256         // that the store is given at once
	giveRounds  = 4           // after which an open breaker closes while the last are still being given,
	giveFor     = time.Second // or this time after the first of them: under load there is always one more
	givePause   = time.Second // after giving failed, or a machine of the store did not answer
)

// resume goes on with a store that answers. It is given what it is owed first: as long as the breaker is open, requests are
// counted here, so that no budget is handed out twice. What a request is just counting here when the breaker closes is given
// with the next answer.
func (s *Store) resume(now time.Time) {
	o := &s.outage
	o.mu.Lock()
	switch {
	case o.giving:
	case o.owed.count() == 0:
		s.breaker.close()
		o.settle(now)
	case o.closed || !o.owed.due(now):
		s.breaker.close()
	case s.breaker.waits() || !now.Before(o.pause):
		ctx, stop := context.WithCancel(context.Background())
		o.giving, o.heard, o.stop = true, true, stop
		o.giver.Go(func() {
			defer stop()
			_ = s.giveBack(ctx)
		})
	}
	o.mu.Unlock()
	o.tell()
}

// giveBack gives the store what it is owed, what is added meanwhile too, until nothing is left or the store fails. The first
// round is the outage's own, and the breaker waits for it however long it is; what came meanwhile is bounded. Each window
// is handed over once, whatever becomes of it. Whoever calls it has set giving.
func (s *Store) giveBack(ctx context.Context) error {
	var second time.Time // when the second round began
	for rounds := 0; !s.gaveAll(); rounds++ {
		if rounds == 1 {
			second = s.options.Now()
		}
		for more := true; more; {
			if rounds >= giveRounds || rounds > 0 && s.options.Now().Sub(second) >= giveFor {
				s.breaker.close()
				s.outage.pass()
			}
			var err error
			if more, err = s.giveSome(ctx); err != nil {
				s.gaveUp(ctx, err)
				return err
			}
		}
	}
	return nil
}

// gaveAll begins a round, or ends the giving if nothing can be given now: nothing is left, or only
// windows whose machine does not answer. Those keep nobody else from the store.
func (s *Store) gaveAll() bool {
	o := &s.outage
	o.mu.Lock()
	if now := s.options.Now(); o.owed.due(now) {
		o.owed.begin(giveWindows, now)
		o.mu.Unlock()
		return false
	}
	o.giving, o.passing = false, false
	s.breaker.close()
	if o.heard && o.owed.count() == 0 {
		o.settle(s.options.Now())
	}
	o.mu.Unlock()
	o.tell()
	return true
}

// gaveUp ends the giving because the store failed again, or ctx ended. What is left waits for the store's next answer.
func (s *Store) gaveUp(ctx context.Context, err error) {
	o, now := &s.outage, s.options.Now()
	if ctx.Err() == nil {
		o.failure(now, err)
	}
	o.mu.Lock()
	o.giving, o.passing, o.pause = false, false, now.Add(givePause)
	s.breaker.reopen(now) // and not before: an answer that comes between would wait for this giving to close the breaker
	o.mu.Unlock()
}

// giveSome gives the store the next windows of a round, notes what came of it, and says whether there
// are more. What a machine is owed that does not answer is not sent: it would be lost.
func (s *Store) giveSome(ctx context.Context) (more bool, err error) {
	o := &s.outage
	now := s.now()
	o.mu.Lock()
	spent, units := o.owed.next(giveWindows, now)
	more = len(o.owed.round) > 0
	last := o.closed
	o.mu.Unlock()
	spent, units = s.holdSilent(ctx, spent, units, last)
	var lost int64
	if len(spent) > 0 {
		ctx, cancel := context.WithTimeout(ctx, max(10*s.options.Deadline, time.Second))
		lost, err = s.shared.Give(ctx, spent)
		cancel()
		lost = min(max(lost, 0), units)
	}
	o.mu.Lock()
	o.owed.landed()
	o.given += units - lost
	o.lost += lost
	o.heard = o.heard || len(spent) > 0 && err == nil
	o.mu.Unlock()
	return more, err
}

// holdSilent returns the windows whose machine answers, with the units in them. The others wait,
// unless the Store is closed: then there is no later time.
func (s *Store) holdSilent(ctx context.Context, spent []weir.Spent, units int64, last bool) ([]weir.Spent, int64) {
	if len(spent) == 0 || last {
		return spent, units
	}
	reached := make([]bool, len(spent))
	err := s.shared.Reach(s.deadlines.bound(ctx), spent, reached)
	if err == nil {
		return spent, units
	}
	o, now := &s.outage, s.options.Now()
	o.failure(now, err)
	o.mu.Lock()
	defer o.mu.Unlock()
	answering := spent[:0]
	for i := range spent {
		if reached[i] {
			answering = append(answering, spent[i])
			continue
		}
		units -= spent[i].Used.Count
		o.owed.hold(spent[i].Key, now.Add(givePause), now)
	}
	return answering, units
}

// now returns the present moment by the clocks that a window is noted by.
func (s *Store) now() instant { return instant{s.shared.Now(), s.options.Now()} }

var errUnconfirmed = errors.New("it did not confirm them")

// Close gives the store what was counted here while it did not answer, for as long as ctx allows, and waits for that to end.
// What may not have arrived is lost, and an error says how much that is. Take works on, but what it counts here from then
// on is not given to the store. Only a Store around a Shared one needs it. It closes neither of the two stores. Closing again does nothing.
func (s *Store) Close(ctx context.Context) error {
	if s.shared == nil {
		return nil
	}
	o := &s.outage
	o.closing.Lock()
	defer o.closing.Unlock()
	o.mu.Lock()
	o.closed = true // from now on nobody notes anything, or begins to give
	lost := o.lost
	if o.stop != nil {
		defer context.AfterFunc(ctx, o.stop)()
	}
	o.mu.Unlock()
	o.giver.Wait()

	o.mu.Lock()
	o.giving, o.heard, o.owed.until = true, false, time.Time{}
	o.mu.Unlock()
	err := s.giveBack(ctx)

	o.mu.Lock()
	o.lost += o.owed.drop(s.now())
	lost = o.lost - lost
	o.mu.Unlock()
	if lost == 0 {
		return nil
	}
	if err == nil {
		err = cmp.Or(ctx.Err(), errUnconfirmed)
	}
	return fmt.Errorf("give back what was counted here: %d units may not have reached the store: %w", lost, err)
}
