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
	// batchWindows is the number of windows in one Give.
	batchWindows = 256
	// exclusiveRounds and exclusiveTime bound how long takes wait for a reconciliation after its
	// first round. Under load there is always another round.
	exclusiveRounds = 4
	exclusiveTime   = time.Second
	// retryPause is the pause after a failed reconciliation, or after a machine did not answer.
	retryPause = time.Second
)

// resume goes back to a store that answers. If the store is owed units, it receives them first, and
// the breaker stays open meanwhile, so that no unit is admitted twice. Units that a request counts
// here at the moment when the breaker closes are given after the next answer.
func (s *Store) resume(now time.Time) {
	o := &s.outage
	o.mu.Lock()
	switch {
	case o.reconciling:
	case o.owed.count() == 0:
		s.breaker.close()
		o.settle(now)
	case o.closed || !o.owed.due(now):
		s.breaker.close()
	case s.breaker.waitsToClose() || !now.Before(o.pauseUntil):
		ctx, cancel := context.WithCancel(context.Background())
		o.reconciling, o.answered, o.cancel = true, true, cancel
		o.reconciler.Go(func() {
			defer cancel()
			_ = s.reconcile(ctx)
		})
	}
	o.mu.Unlock()
	o.notify()
}

// reconcile gives the store everything that it is owed, including what is added meanwhile, until
// nothing is left or the store fails. The breaker stays open for the whole first round, which is
// what the outage left. The time for later rounds is bounded. Each window is sent once, whatever
// the result is. The caller has set outage.reconciling.
func (s *Store) reconcile(ctx context.Context) error {
	var second time.Time // the start of the second round
	for rounds := 0; s.beginRound(); rounds++ {
		if rounds == 1 {
			second = s.options.Now()
		}
		for more := true; more; {
			if rounds >= exclusiveRounds || rounds > 0 && s.options.Now().Sub(second) >= exclusiveTime {
				s.breaker.close()
				s.outage.allowOvertaking()
			}
			var err error
			if more, err = s.giveBatch(ctx); err != nil {
				s.abort(ctx, err)
				return err
			}
		}
	}
	return nil
}

// beginRound begins a round and returns true. If nothing can be given now, it ends the
// reconciliation and returns false. Windows whose machine does not answer may be left; they do not
// keep other windows from the store.
func (s *Store) beginRound() bool {
	o := &s.outage
	o.mu.Lock()
	if now := s.options.Now(); o.owed.due(now) {
		o.owed.beginRound(batchWindows, now)
		o.mu.Unlock()
		return true
	}
	o.reconciling, o.overtaking = false, false
	s.breaker.close()
	if o.answered && o.owed.count() == 0 {
		o.settle(s.options.Now())
	}
	o.mu.Unlock()
	o.notify()
	return false
}

// abort ends the reconciliation because the store failed again, or ctx ended. What is left waits
// for the next answer.
func (s *Store) abort(ctx context.Context, err error) {
	o, now := &s.outage, s.options.Now()
	if ctx.Err() == nil {
		o.failure(now, err)
	}
	o.mu.Lock()
	o.reconciling, o.overtaking, o.pauseUntil = false, false, now.Add(retryPause)
	// Not earlier: a success in between would wait for this reconciliation to close the breaker.
	s.breaker.reopen(now)
	o.mu.Unlock()
}

// giveBatch gives the store the next windows of the round, and reports whether there are more. It
// does not send the windows of a machine that is silent: their units would be lost.
func (s *Store) giveBatch(ctx context.Context) (more bool, err error) {
	o := &s.outage
	now := s.now()
	o.mu.Lock()
	spent, units := o.owed.nextBatch(batchWindows, now)
	more = len(o.owed.round) > 0
	final := o.closed
	o.mu.Unlock()
	if !final {
		spent, units = s.holdSilent(ctx, spent, units)
	}
	var lost int64
	if len(spent) > 0 {
		ctx, cancel := context.WithTimeout(ctx, max(10*s.options.Deadline, time.Second))
		lost, err = s.shared.Give(ctx, spent)
		cancel()
		lost = min(max(lost, 0), units)
	}
	o.mu.Lock()
	o.owed.endBatch()
	o.given += units - lost
	o.lost += lost
	o.answered = o.answered || len(spent) > 0 && err == nil
	o.mu.Unlock()
	return more, err
}

// holdSilent returns the windows whose machine answers, and the number of their units. It holds the
// others for later. A closed Store has no later, and does not call it.
func (s *Store) holdSilent(ctx context.Context, spent []weir.Spent, units int64) ([]weir.Spent, int64) {
	if len(spent) == 0 {
		return spent, units
	}
	reached := make([]bool, len(spent))
	err := s.shared.Reach(s.deadlines.context(ctx), spent, reached)
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
		o.owed.hold(spent[i].Key, now.Add(retryPause), now)
	}
	return answering, units
}

// now returns the present by the two clocks of an owed window.
func (s *Store) now() instant { return instant{s.shared.Now(), s.options.Now()} }

var errUnconfirmed = errors.New("it did not confirm them")

// Close gives the inner store what it is owed, and waits for that until ctx ends. If units may not
// have arrived, they are lost, and Close returns an error with their number. Take still works
// afterwards, but the units that it counts in the fallback are not given to the inner store. Close
// does not close the two stores. It does nothing if the inner store is not weir.Shared, or if it
// was called before.
func (s *Store) Close(ctx context.Context) error {
	if s.shared == nil {
		return nil
	}
	o := &s.outage
	o.closing.Lock()
	defer o.closing.Unlock()
	o.mu.Lock()
	o.closed = true // from now on takes record nothing, and no reconciliation begins
	lost := o.lost
	if o.cancel != nil {
		defer context.AfterFunc(ctx, o.cancel)()
	}
	o.mu.Unlock()
	o.reconciler.Wait()

	o.mu.Lock()
	o.reconciling, o.answered, o.owed.heldUntil = true, false, time.Time{}
	o.mu.Unlock()
	err := s.reconcile(ctx)

	o.mu.Lock()
	o.lost += o.owed.dropAll(s.now())
	lost = o.lost - lost
	o.mu.Unlock()
	if lost == 0 {
		return nil
	}
	if err == nil {
		err = cmp.Or(ctx.Err(), errUnconfirmed)
	}
	return fmt.Errorf("report what was counted here: %d units may not have reached the store: %w", lost, err)
}
