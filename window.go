package weir

// The arithmetic of a fixed window. Times are whole Unix seconds, lengths whole seconds. Every
// store computes this, in its own language, and storetest compares them.

// At returns the window as it is at now. If its reset has come, nothing is spent. A reset is never
// further away than one length, so a clock that was set back does no harm (the count stays).
func (u Used) At(now, per int64) Used {
	if u.Reset <= now {
		return Used{}
	}
	if u.Reset > now+per {
		u.Reset = now + per
	}
	return u
}

// Fits reports whether cost more units fit under limit in the window as it is now (see At). A cost
// of 0 always fits.
func (u Used) Fits(cost, limit int64) bool {
	return cost == 0 || cost <= limit-u.Count
}

// Spend returns the window after cost units were spent at now. The first units open it: it starts
// at now and ends one length later. A cost of 0 opens nothing.
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
