package weir

import (
	"context"
	"fmt"
)

// An Answerer is what answers the requests that a limiter admits.
type Answerer uint8

const (
	// AnswerBackend: what is behind the limiter answers.
	AnswerBackend Answerer = iota
	// AnswerUsage: the front door answers with the state of the caller's windows (Decider.Usage).
	// The request does not reach what is behind the limiter.
	AnswerUsage
)

// ParseAnswerer parses an Answerer as a policy spells it: usage.
func ParseAnswerer(s string) (Answerer, error) {
	if s == AnswerUsage.String() {
		return AnswerUsage, nil
	}
	return 0, fmt.Errorf("answers %q is unknown: usage is allowed", s)
}

// String returns the answerer as a policy spells it: "usage". It is empty for AnswerBackend, which
// a policy does not write.
func (a Answerer) String() string {
	switch a {
	case AnswerBackend:
		return ""
	case AnswerUsage:
		return "usage"
	}
	return fmt.Sprintf("Answerer(%d)", uint8(a))
}

// MaxUsage is the max number of windows that Usage reports.
const MaxUsage = 100

// A Usage is the state of a caller's windows.
type Usage struct {
	Windows []WindowUsage // in the order of the policy
	LeftOut int           // windows that were not read: those beyond MaxUsage, or after ctx ended
}

// A WindowUsage is the state of one window for a caller.
type WindowUsage struct {
	// Standing is as a decision reports it. If Unknown is true or Missing is not empty, only
	// Limiter, Window and Limit are set.
	Standing
	Now      int64 // Unix seconds by the clock that counts
	Exempt   bool  // the caller is never refused
	Everyone bool  // the window counts all callers together
	Local    bool  // the store did not answer, and Count is that of this process
	Unknown  bool  // the store did not answer, and nothing was counted in its place
	// CountedBy are the key sources that count the caller, one for each part of the key; nil if
	// Missing is not empty.
	CountedBy []string
	// Missing is the key source that the caller chooses and has not named, such as "agent". Then
	// the count of its other requests is unknown. It is empty if the caller has all that the key
	// needs. A credential is never missing: a caller without it is counted by its address.
	Missing string
}

// Usage reports the windows of the limiters in force for a caller, and spends nothing. It leaves
// out limiters in Shadow mode, those that deny the caller, and those for which visible returns
// false; visible may be nil.
//
// Usage makes one take of cost 0 for each limiter, one after the other. It begins none after ctx
// has ended. If the store fails, a window has the count of this process, or it is Unknown. Count is
// never another caller's, unless Everyone is true.
func (d *Decider) Usage(ctx context.Context, caller Keys, visible func(*Limiter) bool) Usage {
	var u Usage
	s := d.scratches.Get().(*Scratch)
	defer d.scratches.Put(s)
	policy := d.compiled.Load()
	for i := range policy.policy.Limiters {
		l := policy.named[policy.policy.Limiters[i].Name]
		if l.Mode == Shadow || visible != nil && !visible(&l.Limiter) {
			continue
		}
		if len(u.Windows)+l.rows > MaxUsage || ctx.Err() != nil || u.LeftOut > 0 {
			u.LeftOut += l.rows
			continue
		}
		u.Windows = d.appendUsage(ctx, s, u.Windows, l, caller)
	}
	return u
}

// appendUsage appends the windows of one limiter.
func (d *Decider) appendUsage(ctx context.Context, s *Scratch, dst []WindowUsage, l *limiter, caller Keys) []WindowUsage {
	s.reset()
	// A peek costs 0, so that neither its cost nor its number of windows can be too high.
	_ = s.add(&l.named, "", &Request{Keys: caller, Cost: Peek})
	_ = s.complete(d.keeper)
	if s.denied != nil {
		return dst
	}
	d.take(ctx, s)
	// A store that nothing answers for has refused even a take that costs nothing.
	unknown := s.receipt.Outcome == StoreUnavailable
	local := s.receipt.Outcome == CountedLocally || s.receipt.Outcome == AllowedUncounted
	var decided Decision
	s.decide(&decided)
	first := len(dst)
	dst = append(dst, make([]WindowUsage, s.n-s.gates)...)
	for _, standing := range decided.Standings() {
		i := int(standing.charge)
		w := &dst[first+i]
		w.CountedBy, w.Missing = countedBy(standing.Window.Key, caller)
		w.Exempt, w.Local, w.Unknown, w.Everyone = s.exempted[i], local, unknown, countsEveryone(standing.Window, caller)
		w.Standing, w.Now = standing, decided.Now
		if unknown || w.Missing != "" {
			w.Standing = Standing{Limiter: standing.Limiter, Window: standing.Window, Limit: standing.Limit, charge: standing.charge}
		}
	}
	return dst
}

// countedBy returns the source of each part of a key for a caller, and the first source that the
// caller chooses and lacks. A part that also counts by the address lacks nothing.
func countedBy(k Key, caller Keys) (sources []string, missing string) {
	var buffer [64]byte
	for _, part := range k {
		source, _ := CountedBy(buffer[:0], part, caller)
		sources = append(sources, source)
		if !part.has(source) {
			if missing = part.firstChosen(); missing != "" {
				return nil, missing
			}
		}
	}
	return sources, ""
}

func (p Part) has(source string) bool {
	for _, s := range p {
		if s == source {
			return true
		}
	}
	return false
}

// firstChosen returns the first source of p that is neither the address nor a credential, or "".
func (p Part) firstChosen() string {
	for _, s := range p {
		if kind := SourceOf(s).Kind; kind != Credential && kind != Address && kind != Common {
			return s
		}
	}
	return ""
}

func (c *checker) checkAnswers(l *Limiter) {
	switch {
	case l.Answers > AnswerUsage:
		c.add("answers", -1, l.Answers.String(), "answers %v is unknown: usage is allowed", l.Answers)
	case l.Answers != AnswerBackend && l.Mode == Shadow:
		c.add("answers", -1, l.Answers.String(), "answers %v in mode shadow: a limiter in mode shadow answers no request; remove one of the two", l.Answers)
	}
}
