package weir

// The arithmetic of a fixed window. Times are whole Unix seconds, lengths whole seconds. Every
// store computes this, in its own language, and storetest compares them. ends.go has the windows
// that end by the clock.

// End returns the second at which the window ends if it is opened at now, and the latest second at
// which it can end.
func (c *Charge) End(now int64) int64 {
	if c.Ends == nil {
		return now + c.Per
	}
	return c.Ends.After(now)
}

// At returns the window as it is at now. If its reset has come, nothing is spent. A reset is never
// later than end, the Charge.End of now, so a clock that was set back does no harm (the count
// stays).
func (u Used) At(now, end int64) Used {
	if u.Reset <= now {
		return Used{}
	}
	if u.Reset > end {
		u.Reset = end
	}
	return u
}

// Fits reports whether cost more units fit under limit in the window as it is now (see At). A cost
// of 0 always fits. Gate fits if one more unit would.
func (u Used) Fits(cost, limit int64) bool {
	if cost == Gate {
		cost = 1
	}
	return cost == 0 || cost <= limit-u.Count
}

// Spend returns the window after cost units were spent. The first units open it, until end, the
// Charge.End of now. A cost of 0 and Gate open and change nothing.
func (u Used) Spend(cost, end int64) Used {
	if cost <= 0 {
		return u
	}
	if u.Reset == 0 {
		u.Reset = end
	}
	u.Count += cost
	return u
}

// Settle returns the window after units were added to it, also beyond a limit, or given back if
// they are negative. A count of MaxLimit stays, because it may stand for more.
func (u Used) Settle(units int64) Used {
	if u.Count < MaxLimit {
		u.Count = min(max(u.Count+units, 0), MaxLimit)
	}
	return u
}
