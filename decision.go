package weir

// A Decision answers one Request. It holds no memory that the Decider reuses.
type Decision struct {
	Allowed bool
	Outcome Outcome
	Now     int64 // Unix seconds by the clock that decided; 0 for Unlimited and Denied
	Cost    int64 // units spent, or the units that a refused request would have spent
	Exempt  bool  // the caller is never refused (Limiter.Exempt)

	DeniedBy *Limiter // for Denied, the limiter; otherwise nil; read only

	few  [2]Standing // most limiters have one or two windows, which need no allocation
	many []Standing  // all standings, if there are more than fit into few
	n    int

	responses *Responses
}

// Responses returns the responses of the policy that decided. They are read only. It is nil for a
// request that no limiter covers. The same policy in force always returns the same pointer.
func (d *Decision) Responses() *Responses { return d.responses }

// A Standing is the state of one window after a Decision.
type Standing struct {
	Limiter *Limiter // the limiter of the window; read only
	Window  *Window  // read only
	// Limit is the limit for this caller: Window.Limit, or that of a plan, an override or a grant.
	Limit int64
	Count int64 // units spent, as the store counts them
	// Remaining is the number of units left, and never negative. For an exempt caller it is Limit:
	// so many requests will be admitted, whatever was spent.
	Remaining int64
	Reset     int64 // Unix seconds at which the budget is restored
	Refused   bool  // this window is a reason for the refusal
	// Penalty means that the caller is under the limiter's penalty, which ends at Reset or before.
	// Only the limiter's first window has it. Then Remaining is 0.
	Penalty bool
	// InFlight means that this is the limit of Limiter.InFlight: Count is the requests under way,
	// and Reset, which slots do not have, is the next second.
	InFlight bool

	charge uint8 // the index of its charge in the take
}

// Standings returns the standing of every charged window, the binding one first. It is empty for a
// request that no limiter covers, and for one that is denied.
func (d *Decision) Standings() []Standing {
	if d.many != nil {
		return d.many
	}
	return d.few[:d.n]
}

// Binding returns the standing of the window that the headers describe (D4). If the request was
// refused, it is the window that refused and frees last; otherwise it is the window with the
// smallest remaining budget, and the limit in flight only if there is no window. It is the zero
// Standing if there are no Standings.
func (d *Decision) Binding() Standing {
	if d.many != nil {
		return d.many[0]
	}
	return d.few[0]
}

// Limiter returns the limiter that decided: that of the binding window, or the one that denied. It
// is nil for a request that no limiter covers.
func (d *Decision) Limiter() *Limiter {
	if d.DeniedBy != nil {
		return d.DeniedBy
	}
	return d.Binding().Limiter
}

// RetryAfter returns the seconds after which a refused request can be sent again, and 0 for an
// allowed request and for one that is denied.
func (d *Decision) RetryAfter() int64 {
	if d.Allowed || d.Outcome == Denied {
		return 0
	}
	return max(d.Binding().Reset-d.Now, 1)
}

// Near reports whether less than a fifth of the limit remains.
func (w *Standing) Near() bool { return w.Remaining*5 < w.Limit }

// deny writes the decision on a request that a limiter denies.
func (s *Scratch) deny(d *Decision) {
	*d = Decision{Outcome: Denied, DeniedBy: &s.denied.Limiter, responses: s.denied.responses}
}

// decide reads the receipt into d: one standing for each window, the binding one first.
func (s *Scratch) decide(d *Decision) {
	outcome := s.receipt.Outcome
	d.DeniedBy = nil
	d.Exempt = s.exempt == s.n
	if d.Exempt && !s.receipt.Allowed { // the store failed, or it counts no further
		s.receipt.Allowed = true
		if outcome == StoreUnavailable {
			outcome = AllowedUncounted
		}
	}
	d.Allowed, d.Outcome, d.Now, d.Cost, d.n = s.receipt.Allowed, outcome, s.receipt.Now, s.cost, s.n-s.gates
	d.many, d.responses = nil, s.limiters[0].responses
	if d.n > len(d.few) {
		d.many = make([]Standing, d.n)
	}
	standings, n, first := d.Standings(), 0, 0
	for i := range s.n {
		c, used := &s.charges[i], s.receipt.Used[i]
		if s.windows[i] == nil { // a gate: readGates reads it
			continue
		}
		w := &standings[n]
		n++
		w.Limiter, w.Window = &s.limiters[i].Limiter, s.windows[i]
		w.Limit, w.Count, w.charge = s.limits[i], used.Count, uint8(i)
		w.Remaining, w.Refused, w.Penalty, w.InFlight = max(w.Limit-used.Count, 0), false, false, c.Held
		if s.exempted[i] {
			w.Remaining = w.Limit
		}
		w.Reset = used.Reset
		switch {
		case c.Held:
			w.Reset = d.Now + 1
		case w.Reset == 0:
			w.Reset = c.End(d.Now)
		}
		if !d.Allowed && !used.Fits(c.Cost, c.Limit) {
			w.Refused, w.Remaining = true, 0
		}
		if n > 1 && w.Binds(&standings[first]) {
			first = n - 1
		}
	}
	if first > 0 {
		standings[0], standings[first] = standings[first], standings[0]
	}
	if s.gates > 0 {
		s.readGates(d)
	}
}

// standing returns the standing of a charge, or nil.
func (d *Decision) standing(charge int) *Standing {
	standings := d.Standings()
	for i := range standings {
		if w := &standings[i]; int(w.charge) == charge {
			return w
		}
	}
	return nil
}

// bind puts the binding standing first.
func (d *Decision) bind() {
	standings := d.Standings()
	for i := range standings {
		if standings[i].Binds(&standings[0]) {
			standings[0], standings[i] = standings[i], standings[0]
		}
	}
}

// Binds reports whether the headers describe w rather than o (D4). The order of a policy's windows
// makes no difference.
func (w *Standing) Binds(o *Standing) bool {
	if w.Refused != o.Refused {
		return w.Refused
	}
	if !w.Refused && w.InFlight != o.InFlight {
		return o.InFlight
	}
	if !w.Refused && w.Remaining != o.Remaining {
		return w.Remaining < o.Remaining
	}
	if w.Reset != o.Reset {
		return w.Reset > o.Reset
	}
	return w.Limit < o.Limit
}
