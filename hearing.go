package weir

import (
	"context"
	"sync"
)

// maxKept is the max number of trials that wait to be told how their requests go on. More end at
// once: what they have reserved stays charged, and their slots are given back.
const maxKept = 8192

// A hearing is what a trial has been told of its request, while its store has not answered yet.
type hearing struct {
	mu    sync.Mutex
	next  *Scratch // the next trial of the request
	heard          // guarded by mu
}

type heard struct {
	taken  bool // the store has answered: the trial is settled when it is told
	ended  bool // nobody tells it more: whoever has its Scratch frees it
	status int  // 0: not told
	cost   told // what is told of the cost; zero: not told
	awaits Awaits
	reads  Reading
}

// isServed is told by Served. Trials await it with AwaitsEnd.
const isServed Awaits = 1 << 7

// A told is what a request tells its trials: the AwaitsStatus, the AwaitsCost, the AwaitsEnd, or
// isServed.
type told struct {
	what   Awaits
	status int
	from   Reading // of the cost, as in SpentFrom
	units  int64
}

// newTrial returns the Scratch of a trial.
func (d *Decider) newTrial() *Scratch {
	s := d.scratches.Get().(*Scratch)
	s.reset()
	s.quiet, s.hearing.next, s.hearing.heard = false, nil, heard{}
	s.body = bodyCostsMost // a request does not wait for what it is only tried out under
	return s
}

// keeps reports whether a trial of live is told how the request goes on. If so, whoever tells its
// end releases it. A request that was refused, or whose caller keeps no Scratch, ends at once.
func (d *Decider) keeps(r *Request, out *Decision) bool {
	if r.Scratch == nil || !out.Allowed {
		return false
	}
	if d.kept.Add(1) > maxKept {
		d.kept.Add(-1)
		return false
	}
	return true
}

// keep adds a trial to those that live tells.
func (live *Scratch) keep(trial *Scratch, awaits Awaits, reads Reading) {
	trial.hearing.awaits, trial.hearing.reads = awaits, reads
	trial.hearing.next, live.waiting = live.waiting, trial
	live.include(awaits, reads)
}

// keepOrEnd keeps a trial that its store has decided, if it awaits anything, or ends it.
func (d *Decider) keepOrEnd(ctx context.Context, live, trial *Scratch, r *Request, out *Decision) {
	if trial.awaits == 0 || !d.keeps(r, out) {
		d.endTrial(ctx, trial)
		return
	}
	trial.hearing.taken = true
	live.keep(trial, trial.awaits, trial.ReadingInForce())
}

// include adds what a trial needs to be told.
func (live *Scratch) include(awaits Awaits, reads Reading) {
	live.trialsAwait |= awaits
	if awaits&AwaitsCost != 0 && live.trialsRead == (Reading{}) {
		live.trialsRead = reads
	}
}

// tellTrials tells all trials of live, and releases those that need no more.
func (d *Decider) tellTrials(ctx context.Context, live *Scratch, t told) {
	live.trialsAwait, live.trialsRead = 0, Reading{}
	for at := &live.waiting; *at != nil; {
		trial := *at
		next := trial.hearing.next
		if awaits, reads := d.tell(ctx, trial, t); awaits != 0 {
			live.include(awaits, reads)
			at = &trial.hearing.next
		} else {
			*at = next
		}
	}
}

// tell tells one trial, and returns what it needs to be told then. If that is nothing, it is
// released.
func (d *Decider) tell(ctx context.Context, trial *Scratch, t told) (Awaits, Reading) {
	h := &trial.hearing
	h.mu.Lock()
	if !h.taken {
		defer h.mu.Unlock()
		if t.from != (Reading{}) && t.from != h.reads { // the cost of other limiters
			return h.awaits, h.reads
		}
		switch t.what {
		case AwaitsStatus:
			h.status = t.status
		case AwaitsCost:
			if h.cost.what == 0 {
				h.cost = t
			}
		case AwaitsEnd:
			h.ended = true
			return 0, Reading{} // the goroutine that waits for the store releases it
		}
		if h.awaits &^= t.what; h.awaits == 0 { // but it may need to be settled
			h.awaits = AwaitsEnd
		}
		return h.awaits, h.reads
	}
	h.mu.Unlock()
	d.apply(ctx, trial, t)
	awaits, reads := trial.awaits, trial.ReadingInForce()
	if awaits == 0 {
		d.release(ctx, trial)
	}
	return awaits, reads
}

// apply settles a trial by what it is told.
func (d *Decider) apply(ctx context.Context, trial *Scratch, t told) {
	switch t.what {
	case AwaitsStatus:
		d.Answered(ctx, trial, t.status, nil)
	case AwaitsCost:
		d.SpentFrom(ctx, trial, t.from, t.units, nil)
	case AwaitsEnd:
		d.End(ctx, trial)
	case isServed:
		d.Served(ctx, trial)
	}
}

// answered settles a trial by all that it was told while its store had not answered, and releases
// it if its request has ended meanwhile.
func (d *Decider) answered(ctx context.Context, trial *Scratch) {
	h := &trial.hearing
	h.mu.Lock()
	if h.status != 0 {
		d.Answered(ctx, trial, h.status, nil)
	}
	if h.cost.what != 0 {
		d.apply(ctx, trial, h.cost)
	}
	h.taken = true
	ended := h.ended
	h.mu.Unlock()
	if ended {
		d.release(ctx, trial)
	}
}

// release ends a kept trial. Its Scratch must not be used after that.
func (d *Decider) release(ctx context.Context, trial *Scratch) {
	d.kept.Add(-1)
	d.endTrial(ctx, trial)
}

func (d *Decider) endTrial(ctx context.Context, trial *Scratch) {
	d.End(ctx, trial)
	d.scratches.Put(trial)
}
