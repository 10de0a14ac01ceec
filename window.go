package weir

// The arithmetic of a fixed window, and nothing else: times are whole Unix seconds, lengths whole seconds. Every store
// computes this, in whatever language it speaks, and storetest holds all of them to it.

// At returns the window as it stands at now: spent to nothing once its reset has come, and never further from its reset
// than one length, so that a clock that was set back does no harm (the count stays).
func (u Used) At(now, per int64) Used {
	if u.Reset <= now {
		return Used{}
	}
	if u.Reset > now+per {
		u.Reset = now + per
	}
	return u
}

// Fits reports whether cost more units fit under limit in the window as it stands (see At). A cost of 0 always fits.
func (u Used) Fits(cost, limit int64) bool {
	return cost == 0 || cost <= limit-u.Count
}

// Spend returns the window after cost units were spent at now. The first units open it: it starts at now and ends one
// length later. A cost of 0 opens nothing.
func (u Used) Spend(cost, now, per int64) Used {
	if cost == 0 {
		return u
	}
	if u.Reset == 0 {
		u.Reset = now + per
	}
	u.Count += cost
	return u
}
