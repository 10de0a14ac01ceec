package weir

import (
	"context"
	"sync"
)

// MaxShadows is the max number of limiters in Shadow mode that can cover one request.
const MaxShadows = 4

// trials are what one request is tried out under, without an effect on it. They do not change once
// a Match has them.
type trials struct {
	shadows   [MaxShadows]*cover // nil after the last
	candidate *candidate         // nil: there is none
	would     *cover             // the candidate's; nil if none of its limiters covers the request
}

// shadow returns a copy of t with one more limiter; t may be nil.
func (t *trials) shadow(by *cover) *trials {
	out := new(trials)
	if t != nil {
		*out = *t
	}
	for i, s := range out.shadows {
		if s == nil {
			out.shadows[i] = by
			break
		}
	}
	return out
}

// A Shadowed is the decision of a limiter in Shadow mode on one request.
type Shadowed struct {
	Limiter  *Limiter  // read only
	Match    Match     // how it covers the request, for the parameters of its route
	Decision *Decision // what it would have decided; nil for Skipped
	Skipped  bool      // it was not asked, because too many trials wait for the store
}

// try runs the trials of a request. live is the Scratch of its decision, out.
func (d *Decider) try(ctx context.Context, live *Scratch, r *Request, out *Decision) {
	for _, by := range live.trials.shadows {
		if by == nil {
			break
		}
		d.shadow(ctx, by, live.path, r)
	}
	if c := live.trials.candidate; c != nil {
		d.compare(ctx, c, r, live, out)
	}
}

// shadow charges a request for path to a limiter in Shadow mode. If the store is not in this
// process, a goroutine asks it, so that the request does not wait.
func (d *Decider) shadow(ctx context.Context, by *cover, path string, r *Request) {
	l := by.limiter
	report := Shadowed{Limiter: &l.Limiter, Match: Match{by: by, path: path}}
	s := d.scratches.Get().(*Scratch)
	s.reset()
	if err := s.add(by, path, r); err != nil || s.complete(d.keeper) != nil {
		// This limiter can never serve such a cost.
		d.scratches.Put(s)
		report.Decision = &Decision{Outcome: Unlimited}
		d.reportShadow(report)
		return
	}
	if s.denied != nil {
		s.deny(&s.trial)
		report.Decision = &s.trial
		d.reportShadow(report)
		d.scratches.Put(s)
		return
	}
	if d.inProcess {
		d.concludeShadow(ctx, report, s)
		return
	}
	if !d.trials.acquire() {
		d.scratches.Put(s)
		report.Skipped = true
		d.reportShadow(report)
		return
	}
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer d.trials.release()
		d.concludeShadow(ctx, report, s)
	}()
}

func (d *Decider) concludeShadow(ctx context.Context, report Shadowed, s *Scratch) {
	defer d.scratches.Put(s)
	d.take(ctx, s)
	s.decide(&s.trial)
	if s.gates > 0 && !s.trial.Allowed {
		d.penalize(ctx, d.store, s, &s.trial)
	}
	if s.notifies {
		d.reportCrossed(s, &s.trial, nil)
	}
	report.Decision = &s.trial
	d.reportShadow(report)
}

func (d *Decider) reportShadow(s Shadowed) {
	if d.options.OnShadow != nil {
		d.options.OnShadow(s)
	}
}

// maxTrials is the max number of trials that wait for a store at the same time.
const maxTrials = 256

// trialSlots count the trials that wait for a store. The zero value is ready.
type trialSlots struct {
	mu     sync.Mutex
	n      int
	closed bool
	empty  chan struct{} // not nil: close waits
}

func (t *trialSlots) acquire() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.n == maxTrials {
		return false
	}
	t.n++
	return true
}

func (t *trialSlots) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.empty != nil {
		close(t.empty)
		t.empty = nil
	}
}

// close rejects further trials, and waits until the last has ended or ctx ends.
func (t *trialSlots) close(ctx context.Context) {
	t.mu.Lock()
	t.closed = true
	if t.n > 0 && t.empty == nil {
		t.empty = make(chan struct{})
	}
	empty := t.empty
	t.mu.Unlock()
	if empty == nil {
		return
	}
	select {
	case <-empty:
	case <-ctx.Done():
	}
}
