package weir

import (
	"cmp"
	"context"
	"sync"
)

// maxKept is the max number of trials that wait for reports on how their requests go on. More end
// at once: what they have reserved stays charged, and their slots are given back.
const maxKept = 8192

// Reports are what was reported to a trial of its request, while its store has not answered yet.
type reports struct {
	mu       sync.Mutex
	next     *Scratch // the next trial of the request
	reported          // guarded by mu
}

type reported struct {
	taken  bool   // the store has answered: the trial is settled by each report
	ended  bool   // no report follows: whoever has its Scratch frees it
	status int    // 0: not reported
	cost   report // zero: not reported
	awaits Awaits
	reads  Reading
}

// isServed is reported by Served. Trials await it with AwaitsEnd.
const isServed Awaits = 1 << 7

// A report is of one step of a request, to its trials: the AwaitsStatus, the AwaitsCost, the
// AwaitsEnd, or isServed.
type report struct {
	what   Awaits
	status int
	from   Reading // of the cost, as in SpentFrom
	units  int64
}

// newTrial returns the Scratch of a trial.
func (d *Decider) newTrial() *Scratch {
	s := d.scratches.Get().(*Scratch)
	s.reset()
	s.quiet, s.reports.next, s.reports.reported = false, nil, reported{}
	s.body = bodyCostsMost // a request does not wait for what it is only tried out under
	return s
}

// keeps reports whether a trial of live gets reports on how the request goes on. If so, whoever
// reports its end releases it. A request that was refused, or whose caller keeps no Scratch, ends
// at once.
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

// keep adds a trial to those that get reports of live.
func (live *Scratch) keep(trial *Scratch, awaits Awaits, reads Reading) {
	trial.reports.awaits, trial.reports.reads = awaits, reads
	trial.reports.next, live.waiting = live.waiting, trial
	live.include(awaits, reads)
}

// keepOrEnd keeps a trial that its store has decided, if it awaits anything, or ends it.
func (d *Decider) keepOrEnd(ctx context.Context, live, trial *Scratch, r *Request, out *Decision) {
	if trial.awaits == 0 || !d.keeps(r, out) {
		d.endTrial(ctx, trial)
		return
	}
	trial.reports.taken = true
	live.keep(trial, trial.awaits, trial.ReadingInForce())
}

// endRejected settles and ends a trial that rejects its request, as if it had been answered so.
func (d *Decider) endRejected(ctx context.Context, trial *Scratch) {
	d.KeepReserved(trial)
	d.Answered(ctx, trial, cmp.Or(trial.trial.responses.Answers.Unauthenticated.Status, 401), nil)
	d.endTrial(ctx, trial)
}

// include adds what a trial awaits.
func (live *Scratch) include(awaits Awaits, reads Reading) {
	live.trialsAwait |= awaits
	if awaits&AwaitsCost != 0 && live.trialsRead == (Reading{}) {
		live.trialsRead = reads
	}
}

// reportToTrials reports to all trials of live, and releases those that await nothing more.
func (d *Decider) reportToTrials(ctx context.Context, live *Scratch, t report) {
	live.trialsAwait, live.trialsRead = 0, Reading{}
	for at := &live.waiting; *at != nil; {
		trial := *at
		next := trial.reports.next
		if awaits, reads := d.reportTo(ctx, trial, t); awaits != 0 {
			live.include(awaits, reads)
			at = &trial.reports.next
		} else {
			*at = next
		}
	}
}

// reportTo reports to one trial, and returns what it awaits then. If that is nothing, it is
// released.
func (d *Decider) reportTo(ctx context.Context, trial *Scratch, t report) (Awaits, Reading) {
	h := &trial.reports
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

// apply settles a trial by a report.
func (d *Decider) apply(ctx context.Context, trial *Scratch, t report) {
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

// answered settles a trial by all that was reported while its store had not answered, and
// releases it if its request has ended meanwhile.
func (d *Decider) answered(ctx context.Context, trial *Scratch) {
	h := &trial.reports
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
