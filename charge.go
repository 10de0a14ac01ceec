package weir

import "fmt"

// A Scratch is the working memory of one decision. The zero value is ready. Its fields are not for
// callers. It must not be copied after its first use.
type Scratch struct {
	n        int // charges
	gates    int // those of them that are gates: their windows[i] is nil
	charges  [MaxCharges]Charge
	limiters [MaxCharges]*limiter
	windows  [MaxCharges]*Window
	limits   [MaxCharges]int64 // the limit for the caller, also if it is exempt
	exempted [MaxCharges]bool  // charges that never refuse
	asked    [MaxCharges]uint8 // the index of each charge's Ask; only written if there are any
	one      Request           // an Ask as a request, while it is charged
	exempt   int               // the number of those
	grants   [MaxCharges]Grant // the grants in force; only written if there are any
	cost     int64             // the largest cost of a charge
	receipt  Receipt
	more     [1]Charge // of a refused request that may begin a penalty

	// the store that counted, and can settle; nil: nothing is to be settled
	settler       Settler
	settlesAtOnce bool       // it is in this process
	canAwait      Awaits     // what the limiters may await
	awaits        Awaits     // what the decision awaits
	settled       uint8      // a bit for each charge that is settled; MaxCharges is 8
	pending       settlement // working memory
	charged       bool       // the decision has charged something that can be settled
	reportedHeld  bool       // see reportHeld

	used [MaxCharges]int64 // what each charge is settled at; only written for those in settled

	watches   bool                 // the decision may report percentages: crossings are its own
	crossings [MaxCharges]crossing // only written if watches
	sender    Keys                 // of the request, for what is still to be reported; else nil

	ends        [MaxCharges]int // the end of each key in keys
	keys        []byte          // starts in room; longer ones are allocated
	room        [192]byte       // enough for the keys of nearly every request
	costTooHigh bool            // a cost may be above its limit
	notifies    bool            // a limiter has percentages to report
	denied      *limiter        // of those that r names, one that denies the caller; nil: none
	body        bodyUse
	unread      bool // a charge is for a body that was not read

	path   string  // of the request, folded; empty if it names its limiters
	own    ownKeys // the Keys as the limiter counts the caller; zero if it is as they are
	trials *trials // what the request is tried out under; nil: nothing

	// The trials of the request that get reports on how it goes on, and what they await.
	waiting     *Scratch
	trialsAwait Awaits
	trialsRead  Reading

	// Of a trial.
	trial, live Decision // that it reports: its own, and the one that is in force
	quiet       bool     // its settlement is not reported
	reports     reports
}

// Who returns the bytes by which a standing's window counts its caller. Two callers of one window
// have the same bytes only if the window counts them together. The bytes must not be changed,
// parsed or shown. They are valid for the standings of the last decision with this Scratch, until
// its next use.
func (s *Scratch) Who(of *Standing) []byte {
	if int(of.charge) >= s.n {
		return nil
	}
	c := &s.charges[of.charge]
	return c.Key[c.Scope:]
}

// Caller returns the Keys by which the last decision with this Scratch counted the sender k: k
// itself, or k with the parameters of the request's route if its limiter counts by one or answers
// usage, and without what all callers share if k lacks the credential that the limiter requires.
// The result is valid until the next use of the Scratch.
func (s *Scratch) Caller(k Keys) Keys {
	if s.own.Keys == nil {
		return k
	}
	return &s.own
}

// charge writes the charges of r: those of the limiters that it names, or of the limiter that m
// found. body is how the request's cost is found if its body reports it.
func (d *Decider) charge(s *Scratch, m Match, r *Request, body bodyUse) error {
	s.reset()
	s.body = body
	if r.Cost < Peek || r.Cost > MaxLimit {
		return fmt.Errorf("decide: cost %d is out of range: 1 to %d, 0 for the limiter's own and Peek are allowed", r.Cost, MaxLimit)
	}
	if len(r.Asks) > 0 {
		return d.chargeAsks(s, r)
	}
	if len(r.Limiters) > 0 {
		if err := s.addNamed(d.compiled.Load(), r); err != nil {
			return err
		}
		if c := d.candidate.Load(); c != nil {
			s.trials = Match{trials: s.trials}.with(c, nil, "").trials
		}
	} else {
		s.trials, s.path = m.trials, m.path
		if m.by == nil {
			return nil
		}
		if err := s.add(m.by, m.path, r); err != nil {
			return err
		}
	}
	if err := s.complete(d.keeper); err != nil {
		return err
	}
	return s.checkEnd(r)
}

// chargeAsks is charge for a request with Asks. A candidate policy does not judge those.
func (d *Decider) chargeAsks(s *Scratch, r *Request) error {
	if err := s.addAsks(d.compiled.Load(), r); err != nil {
		return err
	}
	if err := s.complete(d.keeper); err != nil {
		return err
	}
	if err := s.checkDistinct(); err != nil {
		return err
	}
	return s.checkEnd(r)
}

func (s *Scratch) reset() {
	if s.keys == nil {
		s.keys = s.room[:0]
	}
	s.n, s.gates, s.cost, s.exempt, s.costTooHigh, s.notifies, s.trials, s.keys = 0, 0, 0, 0, false, false, nil, s.keys[:0]
	s.denied, s.path, s.body, s.unread = nil, "", bodyIsRead, false
	s.settler, s.canAwait, s.awaits, s.settled, s.charged, s.reportedHeld = nil, 0, 0, 0, false, false
	s.watches, s.sender = false, nil
	if s.own.Keys != nil {
		s.own = ownKeys{}
	}
	s.receipt.Outcome, s.receipt.Ticket = Counted, Ticket{}
}

func (s *Scratch) addNamed(c *compiled, r *Request) error {
	for i, name := range r.Limiters {
		l, err := c.limiterFor(name)
		if err != nil {
			return err
		}
		for _, before := range r.Limiters[:i] {
			if before == name {
				return fmt.Errorf("decide: limiter %q is named twice", name)
			}
		}
		if l.Mode == Shadow {
			s.trials = s.trials.shadow(&l.named)
			continue
		}
		if err := s.add(&l.named, "", r); err != nil {
			return err
		}
	}
	return nil
}

// add charges every window of the limiter of by, which covers a request for path, unless it denies
// the caller. Then s.denied is that limiter, and nothing is charged in the end.
func (s *Scratch) add(by *cover, path string, r *Request) error {
	var holds exception
	if l := by.limiter; l.special != nil {
		if holds = l.special.find(r.Keys, s.keys); holds.denied {
			s.denied = l
		}
	}
	if s.denied != nil {
		return nil
	}
	return s.addWindows(by, path, r, &holds)
}

// addWindows charges every window of the limiter of by. The keys share a buffer that may still
// move, so complete slices them.
func (s *Scratch) addWindows(by *cover, path string, r *Request, holds *exception) error {
	l, keys := by.limiter, r.Keys
	// Usage looks at the windows of other limiters, too.
	byPath := (len(l.byPath) > 0 || l.Answers == AnswerUsage) && by.route != nil
	if apart := l.shares && l.rejects(keys); apart || byPath {
		s.own = ownKeys{Keys: keys, apart: apart}
		if byPath {
			s.own.route, s.own.path = by.route, path
		}
		keys = &s.own
	}
	first, charges := s.n, l.rows
	if l.gate != nil {
		charges++
	}
	if s.n+charges > MaxCharges {
		return fmt.Errorf("decide: the named limiters have more than %d windows, penalties and limits in flight together", MaxCharges)
	}
	cost := r.Cost
	switch cost {
	case 0:
		cost = s.reservation(l, r)
	case Peek:
		cost = 0
	}
	if l.plans != nil {
		l.plans.fill(r.Keys, &holds.limits)
	}
	for i := range l.rows {
		w := &l.all[i]
		c := &s.charges[s.n]
		c.Limit, c.Per, c.Ends, c.Cost, c.Held, c.OnFailure = w.Limit, l.lengths[i], l.ends[i], cost, w.InFlight, l.OnStoreFailure
		// An event is reported by the request that brings the count to its percentage. An exempt
		// caller has no limit, so leasing for it would use up that of others.
		c.Exact = len(l.Notify) > 0 || holds.exempt
		if w.Requests || w.InFlight {
			c.Cost = min(cost, 1)
		}
		if holds.limits[i] > 0 {
			c.Limit = holds.limits[i]
		}
		s.limits[s.n], s.exempted[s.n] = c.Limit, holds.exempt
		if holds.exempt {
			c.Limit = MaxLimit
			s.exempt++
		}
		s.costTooHigh = s.costTooHigh || c.Cost > c.Limit
		c.Scope = len(l.scopes[i])
		start := len(s.keys)
		s.keys = append(s.keys, l.scopes[i]...)
		for j, part := range w.Key {
			s.keys = appendPart(s.keys, part, keys)
			if j == 0 {
				c.Subject = len(s.keys) - start
			}
		}
		s.ends[s.n] = len(s.keys)
		s.limiters[s.n], s.windows[s.n] = l, w
		s.n++
	}
	if l.gate != nil && !holds.exempt {
		s.addGate(l, first, cost)
	}
	s.cost = max(s.cost, cost)
	s.notifies = s.notifies || len(l.Notify) > 0
	s.canAwait |= l.awaits
	return nil
}

// checkEnd returns an error for a request that would hold a slot forever.
func (s *Scratch) checkEnd(r *Request) error {
	if r.Scratch != nil || s.canAwait&AwaitsEnd == 0 || r.Cost == Peek {
		return nil
	}
	for i := range s.n {
		if s.charges[i].Held {
			return fmt.Errorf("decide: limiter %q holds a slot until the request has ended: pass a Scratch, and call End with it", s.limiters[i].Name)
		}
	}
	return nil
}

// complete slices the keys, applies the grants of a keeper, which may be nil, and checks the costs.
// A denied request has no charges.
func (s *Scratch) complete(k Keeper) error {
	if s.denied != nil {
		s.n = 0
		return nil
	}
	s.sliceKeys()
	if k != nil {
		s.applyGrants(k)
	}
	return s.checkCosts()
}

func (s *Scratch) sliceKeys() {
	start := 0
	for i := range s.n {
		s.charges[i].Key = s.keys[start:s.ends[i]:s.ends[i]]
		start = s.ends[i]
	}
}

// applyGrants replaces the policy's limits by those that an operator granted.
func (s *Scratch) applyGrants(k Keeper) {
	if !k.Granted(s.charges[:s.n], s.grants[:s.n]) {
		return
	}
	for i := range s.n {
		if limit := s.granted(i); limit > 0 {
			s.limits[i] = limit
			if !s.exempted[i] {
				s.charges[i].Limit = limit
				s.costTooHigh = s.costTooHigh || s.charges[i].Cost > limit
			}
		}
	}
}

// granted returns the granted limit of a charge, or 0 without a grant. A later policy may raise a
// limiter's cost above a grant. Such a grant counts as one request's cost, so that the caller does
// not get an error.
func (s *Scratch) granted(i int) int64 {
	if s.grants[i].Limit == 0 {
		return 0
	}
	return max(s.grants[i].Limit, s.limiters[i].costIn(s.windows[i]))
}

// costIn returns the units that a limit of a window must have so that every request can be served:
// 1 if the window counts requests, or if a reservation is no higher than the limit.
func (l *limiter) costIn(w *Window) int64 {
	if w.Requests || w.InFlight {
		return 1
	}
	return l.leastLimit()
}

// leastLimit returns the least limit of units for which every request can be served.
func (l *Limiter) leastLimit() int64 {
	if l.Reserve.From != (Reading{}) {
		return 1
	}
	return max(l.Cost, 1)
}

// checkCosts lowers each reservation that requests report to the caller's limit. It returns an
// error for another charge above its limit, which could never be served.
func (s *Scratch) checkCosts() error {
	if !s.costTooHigh {
		return nil
	}
	for i := range s.n {
		c := &s.charges[i]
		switch {
		case c.Cost <= c.Limit:
		case s.limiters[i].Reserve.From != (Reading{}):
			c.Cost = c.Limit
		default:
			return fmt.Errorf("decide: cost %d exceeds the limit of %q of limiter %q, which is %d here: it could never be served",
				c.Cost, s.windows[i], s.limiters[i].Name, c.Limit)
		}
	}
	s.cost = 0
	for i := range s.n {
		s.cost = max(s.cost, s.charges[i].Cost)
	}
	return nil
}
