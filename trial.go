package weir

import "context"

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

// A Trier is a caller who bounds what it verifies for trials apart from what it verifies for the
// policy in force. Keys without this method do not.
type Trier interface {
	// Trying begins or ends the trials of a request. Between both, only limiters in Shadow mode and
	// the candidate ask the caller, and nothing that they ask may change a later answer to the
	// policy in force.
	Trying(trials bool)
}

// A Shadowed is the decision of a limiter in Shadow mode on one request.
type Shadowed struct {
	Limiter  *Limiter  // read only
	Match    Match     // how it covers the request, for the parameters of its route
	Decision *Decision // what it would have decided; nil for Skipped
	Skipped  bool      // it was not asked, because too many trials wait for the store
	// Rejects means that the limiter would reject the request although its decision admits it: the
	// caller lacks the credential that it requires.
	Rejects bool
}

// try runs the trials of a request. live is the Scratch of its decision, out.
func (d *Decider) try(ctx context.Context, live *Scratch, r *Request, out *Decision) {
	if who, ok := r.Keys.(Trier); ok {
		who.Trying(true)
		defer who.Trying(false)
	}
	for _, by := range live.trials.shadows {
		if by == nil {
			break
		}
		d.shadow(ctx, by, live, r, out)
	}
	if c := live.trials.candidate; c != nil {
		d.compare(ctx, c, r, live, out)
	}
}

// shadow charges a request to a limiter in Shadow mode. live is the Scratch of its decision, out.
// If the store is not in this process, a goroutine asks it, so that the request does not wait.
func (d *Decider) shadow(ctx context.Context, by *cover, live *Scratch, r *Request, out *Decision) {
	l := by.limiter
	report := Shadowed{Limiter: &l.Limiter, Match: Match{by: by, path: live.path}}
	s := d.newTrial()
	if err := s.add(by, live.path, r); err != nil || s.complete(d.keeper) != nil {
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
	report.Rejects = l.rejects(r.Keys)
	if d.inProcess {
		if rejects := d.takeShadow(ctx, report, s); rejects {
			d.endRejected(ctx, s)
		} else {
			d.keepOrEnd(ctx, live, s, r, out)
		}
		return
	}
	if !d.trials.acquire() {
		d.scratches.Put(s)
		report.Skipped = true
		d.reportShadow(report)
		return
	}
	kept := false
	if awaits := s.wouldAwait(); d.settler != nil && awaits != 0 && !report.Rejects {
		if kept = d.keeps(r, out); kept {
			live.keep(s, awaits, s.wouldRead())
		}
	}
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer d.trials.release()
		switch rejects := d.takeShadow(ctx, report, s); {
		case kept:
			d.answered(ctx, s)
		case rejects:
			d.endRejected(ctx, s)
		default:
			d.endTrial(ctx, s)
		}
	}()
}

// takeShadow asks the store, and reports what it decides. Before, report.Rejects is whether the
// limiter rejects what it admits. It returns whether it admits and rejects the request.
func (d *Decider) takeShadow(ctx context.Context, report Shadowed, s *Scratch) bool {
	d.take(ctx, s)
	s.awaiting(d.settler, d.inProcess)
	s.decide(&s.trial)
	if s.gates > 0 && !s.trial.Allowed {
		d.penalize(ctx, d.store, s, &s.trial)
	}
	if s.notifies {
		d.reportCrossed(s, &s.trial, nil)
	}
	report.Decision, report.Rejects = &s.trial, report.Rejects && s.trial.Allowed
	d.reportShadow(report)
	return report.Rejects
}

func (d *Decider) reportShadow(s Shadowed) {
	if d.options.OnShadow != nil {
		d.options.OnShadow(s)
	}
}

// maxTrials is the max number of trials that wait for a store at the same time.
const maxTrials = 256
