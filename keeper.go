package weir

import "context"

// A Holding is what one window holds of one caller, as an operator sees it.
type Holding struct {
	Standing       // Limit is the one that holds, Count what was spent; Reset is 0 where the window is not open
	Declared int64 // the limit of the policy: the window's, or the caller's override
	Override bool  // whether that is an override
	Grant    Grant // the grant in force; zero: none
	Exempt   bool  // the caller is never refused
}

// Inspect tells where each window of a limiter, enforced or not, stands for a caller, in the policy's order. It spends nothing,
// and errs where there is no such limiter or the store does not answer within the deadline.
func (d *Decider) Inspect(ctx context.Context, limiter string, caller Keys) ([]Holding, error) {
	panic("not written yet")
}

// Reset gives a caller its whole budget of a limiter back: its windows are as if they had never been opened. It errs where there
// is no such limiter, where the store is no Keeper, and where it does not answer.
func (d *Decider) Reset(ctx context.Context, limiter string, caller Keys) error {
	panic("not written yet")
}

// Grant gives a caller other limits until a time, in place of what the policy says: limits has one for each window of the
// limiter, in the policy's order, 0 where it has no say. No limits take the caller's grants back. It errs as Reset does,
// and where a limit is not from 1 to MaxLimit or less than the limiter's cost, or until is not to come or more than a year away.
func (d *Decider) Grant(ctx context.Context, limiter string, caller Keys, limits []int64, until int64) error {
	panic("not written yet")
}

// CountedBy returns which alternative of a part of a key counts a caller, and its value appended to dst; source is empty where
// the caller has none of them, nor an address.
func CountedBy(dst []byte, p Part, caller Keys) (source string, value []byte) {
	for _, source := range p {
		if value, ok := caller.AppendKey(dst, source); ok {
			return source, value
		}
	}
	if value, ok := caller.AppendKey(dst, fallbackSource); ok {
		return fallbackSource, value
	}
	return "", dst
}
