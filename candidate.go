package weir

import (
	"context"
	"fmt"
)

// A candidate is a policy that is tried out beside the one in force.
type candidate struct {
	compiled *compiled
	store    Store
	// alone has the trials of a request without shadows, by what covers it under the candidate; nil
	// is the key for nothing. It saves an allocation a request.
	alone map[*cover]*trials
}

func newCandidate(c *compiled, s Store) *candidate {
	out := &candidate{compiled: c, store: s, alone: make(map[*cover]*trials, len(c.named)+1)}
	out.alone[nil] = &trials{candidate: out}
	for _, l := range c.named {
		out.alone[&l.named] = &trials{candidate: out, would: &l.named}
		for i := range l.covers {
			out.alone[&l.covers[i]] = &trials{candidate: out, would: &l.covers[i]}
		}
	}
	return out
}

// A Compared is one request under the policy in force and under the candidate. If a policy does not
// cover the request, the Outcome of its decision is Unlimited. If the candidate could never serve
// its cost, the Outcome is Unlimited too, and Allowed is false.
type Compared struct {
	Live, Candidate *Decision
	// LiveRejects and CandidateRejects mean that the policy rejects the request although its
	// decision admits it: the caller lacks the credential that the limiter requires.
	LiveRejects, CandidateRejects bool
	// LiveWho and CandidateWho are the callers that the binding windows count (see Scratch.Who);
	// nil for Unlimited and Denied.
	LiveWho, CandidateWho []byte
}

// An Effect is what the candidate would change for one request.
type Effect uint8

const (
	Same          Effect = iota // both policies serve it, or neither does
	NewlyRefused                // the policy in force serves it, and the candidate does not
	NewlyAdmitted               // the opposite
)

// Effect returns what the candidate would change for the request.
func (c *Compared) Effect() Effect {
	live, candidate := c.Live.Allowed && !c.LiveRejects, c.Candidate.Allowed && !c.CandidateRejects
	switch {
	case live && !candidate:
		return NewlyRefused
	case !live && candidate:
		return NewlyAdmitted
	}
	return Same
}

// SetCandidate tries p out: every request is also charged under p, in s, and Options.OnCandidate
// gets both decisions. The candidate is never enforced. If p is nil, SetCandidate ends the trial.
//
// s must be InProcess, and no other Decider may use it. Limiters of p in Shadow mode are ignored.
// So are grants, because they belong to the policy in force. If p has problems, the error is a
// *PolicyError. After an error, the candidate before stays.
func (d *Decider) SetCandidate(p *Policy, s Store) error {
	if p == nil {
		d.candidate.Store(nil)
		return nil
	}
	if _, ok := s.(InProcess); !ok {
		return fmt.Errorf("set candidate: store %T can fail: pass an in-process store, such as memstore.New's", s)
	}
	c, problems := compile(*p, d.options.Sources)
	if _, ok := s.(Settler); !ok {
		problems = append(problems, settlingProblems(*p)...)
	}
	if len(problems) > 0 {
		return &PolicyError{Policy: *p, Problems: problems}
	}
	d.candidate.Store(newCandidate(c, s))
	return nil
}

// with returns m with what covers the same request under the candidate. path is folded; empty for a
// limiter that was named.
func (m Match) with(c *candidate, would *cover, path string) Match {
	m.path = path
	if m.trials == nil {
		m.trials = c.alone[would]
		return m
	}
	t := new(trials)
	*t = *m.trials
	t.candidate, t.would = c, would
	m.trials = t
	return m
}

// compare charges a request to the candidate, and reports both decisions. live is the Scratch of
// the decision out.
func (d *Decider) compare(ctx context.Context, c *candidate, r *Request, live *Scratch, out *Decision) {
	s := d.newTrial()
	s.quiet = true
	if !d.decideCandidate(ctx, c, r, live, s) {
		d.endTrial(ctx, s)
		return
	}
	rejects := s.trial.rejects(r.Keys)
	if d.options.OnCandidate != nil {
		s.live = *out
		both := Compared{Live: &s.live, Candidate: &s.trial, LiveRejects: out.rejects(r.Keys), CandidateRejects: rejects}
		if live.n > 0 {
			both.LiveWho = live.Who(&out.Standings()[0])
		}
		// A request that the candidate can never serve has charges, and no standing.
		if judged := s.trial.Standings(); len(judged) > 0 {
			both.CandidateWho = s.Who(&judged[0])
		}
		d.options.OnCandidate(both)
	}
	if rejects {
		d.endRejected(ctx, s)
	} else {
		d.keepOrEnd(ctx, live, s, r, out)
	}
}

// decideCandidate writes the candidate's decision to s.trial. It returns false if there is none,
// because the candidate is being removed.
func (d *Decider) decideCandidate(ctx context.Context, c *candidate, r *Request, live, s *Scratch) bool {
	would := &s.trial // not a variable, which would escape to the heap
	*would = Decision{Allowed: true, Outcome: Unlimited}
	switch err := c.charge(s, live, r); {
	case err != nil:
		*would = Decision{Outcome: Unlimited} // the candidate can never serve such a cost
	case s.denied != nil:
		s.deny(would)
	case s.n > 0:
		if err := c.store.Take(ctx, s.charges[:s.n], &s.receipt); err != nil {
			return false
		}
		settler, _ := c.store.(Settler)
		s.awaiting(settler, true)
		s.decide(would)
		if s.gates > 0 && !would.Allowed {
			d.penalize(ctx, c.store, s, would)
		}
	}
	return true
}

// charge writes the charges of r under the candidate: those of the limiter that covers it, or of
// the limiters that r names and the candidate enforces. live is the Scratch of the decision.
func (c *candidate) charge(s, live *Scratch, r *Request) error {
	if would := live.trials.would; len(r.Limiters) == 0 && would != nil {
		if err := s.add(would, live.path, r); err != nil {
			return err
		}
	}
	for _, name := range r.Limiters {
		if l := c.compiled.named[name]; l != nil && l.Mode == Enforce {
			if err := s.add(&l.named, "", r); err != nil {
				return err
			}
		}
	}
	return s.complete(nil) // without grants
}
