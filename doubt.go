package weir

import "context"

// A Doubter is a caller with a credential that may be left unverified, because to verify it costs
// much. Keys without this method have none.
//
// Decide counts such a caller as one without the credential. A request that is refused as that
// stays refused. If it would be admitted, Decide has the credential verified first, so that each
// admitted request is counted by the credential that it has.
type Doubter interface {
	// Unchecked reports whether the credential was asked for and left unverified.
	Unchecked() bool
	// Resolve verifies it when it is asked for next. After it, Unchecked is false.
	Resolve()
}

// resolve charges a request anew if s holds the charges of a caller in doubt that would be
// admitted. If they would be refused, it returns true, and the receipt in s is that of the refused
// take.
func (d *Decider) resolve(ctx context.Context, s *Scratch, m Match, r *Request) (refused bool, err error) {
	who, ok := r.Keys.(Doubter)
	if !ok || !who.Unchecked() || s.n == 0 {
		return false, nil
	}
	if d.wouldRefuse(ctx, s) {
		return true, nil
	}
	who.Resolve()
	return false, d.charge(s, m, r, bodyIsRead)
}
