package weir

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Penalty refuses a caller everything of a limiter for a time, because the limiter's windows have
// refused it often. It counts by the key of the limiter's first window. The zero value is none.
//
// Refusals are counted like requests: in a window of After and Per, which the first refusal opens.
// The refusal that fills it begins the penalty, and has its end as Reset. So does each further
// refusal in that window after the penalty has ended. Requests that the penalty itself refuses are
// not counted, so they do not prolong it. Nor are those that only windows by everyone refuse, or
// that are refused because the store does not answer.
type Penalty struct {
	After int64         // refusals, 1 to MaxLimit
	Per   time.Duration // the time within which they come: whole seconds, 1 s to MaxPer
	For   time.Duration // the length of the penalty: whole seconds, 1 s to MaxPer
}

const (
	refusalsForm  = "a number of refusals is N refusals per [N] UNIT, such as: 20 refusals per minute"
	refuseForForm = "a time is [N] UNIT, such as: 15 minutes"
)

// ParseRefusals parses how many refusals begin a penalty, as a policy spells it: N refusals per [N]
// UNIT.
func ParseRefusals(s string) (after int64, per time.Duration, err error) {
	words := strings.Fields(s)
	if len(words) < 4 || words[1] != "refusals" && words[1] != "refusal" || words[2] != "per" {
		return 0, 0, fmt.Errorf("after %q: %s", s, refusalsForm)
	}
	if after, err = parseCount(words[0]); err != nil {
		return 0, 0, fmt.Errorf("after %q: number of refusals %q %w", s, words[0], err)
	}
	if per, err = parseLength(words[3:], refusalsForm); err != nil {
		return 0, 0, fmt.Errorf("after %q: %w", s, err)
	}
	return after, per, nil
}

// ParseRefuseFor parses the length of a penalty as a policy spells it: [N] UNIT.
func ParseRefuseFor(s string) (time.Duration, error) {
	words := strings.Fields(s)
	if len(words) == 0 {
		return 0, fmt.Errorf("refuse_for %q: %s", s, refuseForForm)
	}
	length, err := parseLength(words, refuseForForm)
	if err != nil {
		return 0, fmt.Errorf("refuse_for %q: %w", s, err)
	}
	return length, nil
}

// Refusals returns how many refusals begin the penalty, as a policy spells it.
func (p Penalty) Refusals() string {
	what := " refusals per "
	if p.After == 1 {
		what = " refusal per "
	}
	return strings.Replace(rate(p.After, p.Per, Calendar{}), " per ", what, 1)
}

// RefuseFor returns the length of the penalty as a policy spells it.
func (p Penalty) RefuseFor() string { return lengthText(p.For) }

// String describes the penalty in one line.
func (p Penalty) String() string {
	return "refused for " + p.RefuseFor() + " after " + p.Refusals()
}

func lengthText(per time.Duration) string {
	for _, u := range units {
		if n := per / u.per; per > 0 && per%u.per == 0 {
			if n == 1 {
				return "1 " + u.name
			}
			return fmt.Sprintf("%d %ss", n, u.name)
		}
	}
	return per.String()
}

func (c *checker) checkPenalty(l *Limiter) {
	p := l.Penalty
	if p == (Penalty{}) {
		return
	}
	if p.After < 1 || p.After > MaxLimit {
		c.add("penalty", -1, fmt.Sprint(p.After), "penalty after %d refusals is out of range: 1 to %d is allowed", p.After, MaxLimit)
	}
	if err := lengthProblem(p.Per); err != nil {
		c.add("penalty", -1, p.Per.String(), "penalty after refusals per %v: %v", p.Per, err)
	}
	if err := lengthProblem(p.For); err != nil {
		c.add("penalty", -1, p.For.String(), "penalty refuses for %v: %v", p.For, err)
	}
	if len(l.Windows) == 0 {
		c.add("penalty", -1, "", "penalty: it counts by the key of the first window, and there is none; add a window")
	} else if l.Windows[0].Key.Uses(everyoneSource) {
		c.add("penalty", -1, "", "penalty: it counts by the key of the first window, %q, which callers share, so one of them could shut out all; put a window by another key first", l.Windows[0].Key)
	}
}

func lengthProblem(d time.Duration) error {
	if d < time.Second || d > MaxPer || d%time.Second != 0 {
		return errors.New("whole seconds, 1 second to 31 days, are allowed")
	}
	return nil
}

// Marks in the length of a scope, beside endsMark: the window of a penalty, and of the refusals
// that begin it. No length has these bits.
const (
	penaltyMark  = 1 << 30
	refusalsMark = 1 << 29
)

// A gate is the two windows of a penalty. Both count by the key of the limiter's first window. The
// penalty is a window of one unit: while that is spent, a charge of cost Gate refuses.
type gate struct {
	scope    []byte // of the penalty
	seconds  int64  // its length
	refusals []byte // the scope of the refusals
	limit    int64
	per      int64 // seconds
}

// newGate returns nil for a limiter without a penalty.
func newGate(l *Limiter) *gate {
	if l.Penalty == (Penalty{}) || len(l.Windows) == 0 {
		return nil
	}
	g := &gate{seconds: int64(l.Penalty.For / time.Second), limit: l.Penalty.After, per: int64(l.Penalty.Per / time.Second)}
	g.scope = appendScope(nil, l.Name, g.seconds|penaltyMark, "", l.Windows[0].Key)
	g.refusals = appendScope(nil, l.Name, g.per|refusalsMark, "", l.Windows[0].Key)
	return g
}

// addGate adds the charge that refuses the callers under a penalty. first is the index of the
// charge of the limiter's first window. Its windows[i] is nil.
func (s *Scratch) addGate(l *limiter, first int, cost int64) {
	begin := 0
	if first > 0 {
		begin = s.ends[first-1]
	}
	who := &s.charges[first]
	c := &s.charges[s.n]
	*c = Charge{Scope: len(l.gate.scope), Limit: 1, Per: l.gate.seconds, Cost: Gate, OnFailure: l.OnStoreFailure, Exact: true}
	if cost == 0 {
		c.Cost = 0
	}
	c.Subject = c.Scope + who.Subject - who.Scope
	s.keys = append(s.keys, l.gate.scope...)
	s.keys = append(s.keys, s.keys[begin+who.Scope:s.ends[first]]...)
	s.ends[s.n] = len(s.keys)
	s.limiters[s.n], s.windows[s.n], s.limits[s.n], s.exempted[s.n] = l, nil, 1, false
	s.n++
	s.gates++
}

// readGates reads the gates into the standings of their limiters' first windows. A request that
// spends nothing is not refused, but the next one would be. A request that is admitted because the
// store failed is not refused either, and one that is refused for that is not under a penalty.
func (s *Scratch) readGates(d *Decision) {
	if d.Outcome == StoreUnavailable {
		return
	}
	for i := range s.n {
		used := s.receipt.Used[i]
		if s.windows[i] != nil || used.Count == 0 {
			continue
		}
		first := d.standingOf(i - s.limiters[i].rows)
		switch {
		case !d.Allowed:
			first.punish(used.Reset)
		case s.charges[i].Cost == 0:
			if first.Remaining > 0 || first.Reset < used.Reset {
				first.Reset = used.Reset
			}
			first.Penalty, first.Remaining = true, 0
		}
	}
	d.bind()
}

// standingOf returns the standing of a charge, which has one.
func (d *Decision) standingOf(charge int) *Standing {
	standings := d.Standings()
	i := slices.IndexFunc(standings, func(w Standing) bool { return int(w.charge) == charge })
	return &standings[i]
}

// refusals returns the charge of one refusal, behind the gate of charge i.
func (s *Scratch) refusals(i int) Charge {
	c := s.charges[i]
	g, who := s.limiters[i].gate, c.Key[c.Scope:]
	start := len(s.keys)
	s.keys = append(append(s.keys, g.refusals...), who...)
	c.Key = s.keys[start:len(s.keys):len(s.keys)]
	c.Subject += len(g.refusals) - c.Scope
	c.Scope, c.Limit, c.Per, c.Cost = len(g.refusals), g.limit, g.per, 1
	return c
}

// penalize counts the refusals of a decision for the limiters that have a penalty, and begins the
// penalties that are due. It writes them into out. A refusal that no window made, because the store
// failed, is not counted.
func (d *Decider) penalize(ctx context.Context, store Store, s *Scratch, out *Decision) {
	if out.Outcome == StoreUnavailable {
		return
	}
	if !d.inProcess && !d.bounded {
		ctx = context.WithoutCancel(ctx) // as in take
	}
	begun := false
	for i := range s.n {
		if s.windows[i] != nil {
			continue
		}
		first, counts := out.refusedBy(&s.limiters[i].Limiter, i-s.limiters[i].rows)
		if !counts {
			continue
		}
		s.more[0] = s.refusals(i)
		if !s.counted(ctx, store) || s.receipt.Allowed && s.receipt.Used[0].Count < s.more[0].Limit {
			continue
		}
		s.more[0] = s.charges[i]
		s.more[0].Cost = 1
		if !s.counted(ctx, store) { // the next refusal begins it
			continue
		}
		first.punish(s.receipt.Used[0].Reset)
		begun = true
	}
	if begun {
		out.bind()
	}
}

// counted takes s.more, and reports whether a store counted it.
func (s *Scratch) counted(ctx context.Context, store Store) bool {
	s.receipt.Outcome = Counted
	err := store.Take(ctx, s.more[:], &s.receipt)
	return err == nil && (s.receipt.Outcome == Counted || s.receipt.Outcome == CountedLocally)
}

// refusedBy returns the standing of a limiter's first window, which has the given charge, and
// whether one of the limiter's windows refused the request and no penalty did. A window that
// callers share does not count: what others have spent there is not the caller's doing.
func (d *Decision) refusedBy(l *Limiter, charge int) (first *Standing, counts bool) {
	standings := d.Standings()
	for i := range standings {
		w := &standings[i]
		if w.Limiter != l {
			continue
		}
		if w.Penalty {
			return nil, false
		}
		if int(w.charge) == charge {
			first = w
		}
		counts = counts || w.Refused && !w.Window.Key.Uses(everyoneSource)
	}
	return first, counts
}

// punish makes w the standing of a caller under a penalty that ends at end.
func (w *Standing) punish(end int64) {
	if w.Refused {
		end = max(end, w.Reset)
	}
	w.Penalty, w.Refused, w.Remaining, w.Reset = true, true, 0, end
}
