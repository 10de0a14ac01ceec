package weir

import (
	"context"
	"fmt"
)

// A candidate is a policy that is evaluated beside the one in force.
type candidate struct {
	compiled *compiled
	store    Store
	alone    map[*limiter]*beside // where no shadow stands beside it, which saves making one a request; nil: of no limiter
}

func newCandidate(c *compiled, s Store) *candidate {
	out := &candidate{compiled: c, store: s, alone: make(map[*limiter]*beside, len(c.named)+1)}
	out.alone[nil] = &beside{candidate: out}
	for _, l := range c.named {
		out.alone[l] = &beside{candidate: out, would: l}
	}
	return out
}

// A Compared is one request under the policy in force and under the candidate.
type Compared struct {
	Live, Candidate       *Decision // where a policy does not cover the request its Outcome is Unlimited
	LiveWho, CandidateWho []byte    // who the binding windows count (see Scratch.Who); nil where Unlimited
}

// SetCandidate evaluates p on the same requests as the policy in force, counting in s, and reports to Options.OnCandidate; it is
// never enforced. nil ends that. s must be InProcess, and no other Decider's. Limiters of p in Shadow mode are not evaluated, and
// grants, which are given beside the policy in force, do not hold for it. After an error, a *PolicyError where p has problems, what
// was evaluated before still is.
func (d *Decider) SetCandidate(p *Policy, s Store) error {
	if p == nil {
		d.candidate.Store(nil)
		return nil
	}
	if _, ok := s.(InProcess); !ok {
		return fmt.Errorf("set candidate: store %T can fail: pass an in-process store, such as memstore.New's", s)
	}
	c, problems := compile(*p, d.options.Sources)
	if len(problems) > 0 {
		return &PolicyError{Policy: *p, Problems: problems}
	}
	d.candidate.Store(newCandidate(c, s))
	return nil
}

// with returns m with what the candidate says of the same request.
func (m Match) with(c *candidate, would Match) Match {
	if m.beside == nil {
		m.beside = c.alone[would.limiter]
		return m
	}
	b := new(beside)
	*b = *m.beside
	b.candidate, b.would = c, would.limiter
	m.beside = b
	return m
}

// compare charges a request to the candidate, and reports what came of it. live is the ticket of the decision out.
func (d *Decider) compare(ctx context.Context, c *candidate, r *Request, live *ticket, out *Decision) {
	t := d.tickets.Get().(*ticket)
	defer d.tickets.Put(t)
	t.reset()
	would := &t.would // and not on the stack, where what is shown to others cannot stay
	*would = Decision{Allowed: true, Outcome: Unlimited}
	switch err := c.fill(t, live.beside.would, r); {
	case err != nil:
		*would = Decision{Outcome: Unlimited} // a cost that it could never serve
	case t.n > 0:
		if err := c.store.Take(ctx, t.charges[:t.n], &t.receipt); err != nil {
			return // it is being taken away
		}
		t.decide(would)
	}
	if d.options.OnCandidate == nil {
		return
	}
	t.decided = *out
	both := Compared{Live: &t.decided, Candidate: would}
	if live.n > 0 {
		both.LiveWho = live.who(&out.Standings()[0])
	}
	if t.n > 0 {
		both.CandidateWho = t.who(&would.Standings()[0])
	}
	d.options.OnCandidate(both)
}

// fill writes the charges of r under the candidate: those of the limiter that covers it, or of those that it names, as far as the
// candidate has them.
func (c *candidate) fill(t *ticket, would *limiter, r *Request) error {
	if len(r.Limiters) == 0 && would != nil {
		if err := t.add(would, r); err != nil {
			return err
		}
	}
	for _, name := range r.Limiters {
		if l := c.compiled.named[name]; l != nil && l.Mode == Enforce {
			if err := t.add(l, r); err != nil {
				return err
			}
		}
	}
	t.sliceKeys()
	return t.checkCosts()
}
