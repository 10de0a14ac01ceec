package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// Clauses about the three fields of one answer, and about Reset from answer to answer.

func checkLimit(c *check) hooks {
	return hooks{
		unseen: Unobservable.because("no answer had the three fields"),
		counted: func(a *answer) {
			if len(c.part.lengthsOf(a.limit)) == 0 && !c.part.isOfSlots(a) {
				c.broken(a, "X-RateLimit-Limit is %d; the policy has %s", a.limit, c.part.limitsInWords())
				return
			}
			c.kept("%d on every answer, as in the policy", a.limit)
		},
	}
}

func checkWindow(c *check) hooks {
	w := &windowCheck{check: c}
	return hooks{unseen: Unobservable.because("no answer had the three fields"), counted: w.see, settle: w.settle}
}

// A windowCheck compares each Reset with the answer's Date, with every Date known before the
// request was sent, and with the verifier's clock in case Date is wrong.
type windowCheck struct {
	*check
	mu      sync.Mutex
	longest time.Duration // the longest window that an answer described
	byLocal *suspicion    // what is wrong by the verifier's clock
}

func (c *windowCheck) see(a *answer) {
	if a.remaining > a.limit {
		c.broken(a, "Remaining is %d of %d", a.remaining, a.limit)
		return
	}
	if c.part.isOfSlots(a) {
		c.seeSlots(a)
		return
	}
	if low := c.part.window; a.limit != low.Limit && a.remaining > low.Limit && !c.part.hasOtherLimits() {
		c.broken(a, "Remaining is %d of %d, and the window of %d per %v has less left: the fields must describe the window with the least left",
			a.remaining, a.limit, low.Limit, low.Per)
		return
	}
	if a.noTime() {
		c.broken(a, "Reset is %d, which is not a current Unix time", a.reset)
		return
	}
	lengths := c.part.lengthsOf(a.limit)
	if len(lengths) == 0 {
		for _, w := range c.part.limiter.Windows {
			lengths = append(lengths, w.Per)
		}
	}
	longest := c.part.longestOf(lengths)
	c.seeLocal(a, longest)
	if a.known != absent && a.reset <= a.known {
		c.suspect(a, "Reset is %d, and an earlier answer had Date %d before the request was sent: the window is in the past", a.reset, a.known)
		return
	}
	if a.date == absent {
		c.untested(noDate)
		return
	}
	if a.reset-a.date > int64(longest/time.Second)+1 {
		c.suspect(a, "Reset is %d s after Date, and the window of %d is %v long", a.reset-a.date, a.limit, longest)
		return
	}
	c.mu.Lock()
	c.longest = max(c.longest, longest)
	c.mu.Unlock()
}

// seeSlots reads an answer that describes the slots of in_flight, whose Reset is the next second.
func (c *windowCheck) seeSlots(a *answer) {
	switch {
	case a.date == absent:
		c.untested(noDate)
	case a.reset-a.date < -ceilSeconds(a.at.Sub(a.sent)) || a.reset-a.date > 2: // Date may be later
		c.suspect(a, "Reset is %d s after Date, and of a limit on requests under way it is the next second", a.reset-a.date)
	default:
		c.kept("Reset was the next second")
	}
}

// seeLocal compares Reset with the verifier's clock. longest is the longest window that the answer
// may describe.
func (c *windowCheck) seeLocal(a *answer, longest time.Duration) {
	reset := time.Unix(a.reset, 0)
	text := ""
	switch {
	case a.sent.Round(0).Sub(reset) > time.Second:
		text = fmt.Sprintf("Reset is %d, %s before the request was sent by the verifier's clock", a.reset, seconds(a.sent.Round(0).Sub(reset)))
	case reset.Sub(a.at.Round(0)) > longest+time.Second:
		text = fmt.Sprintf("Reset is %d, %s after the answer came by the verifier's clock, and the window of %d is %v long", a.reset, seconds(reset.Sub(a.at.Round(0))), a.limit, longest)
	default:
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byLocal == nil {
		c.byLocal = &suspicion{shows: a, text: text}
	}
}

func (c *windowCheck) settle(s *suspicion, otherClock string) {
	t := c.seen.refusing()
	c.judgeLengths()
	if otherClock != "" && c.clocks.dateIsWrong(t) {
		if local := c.byLocal; local != nil {
			c.broken(local.shows, "%s", local.text)
		} else {
			c.kept("Reset was ahead of the verifier's clock by no more than the window's length; Date is %s that clock", c.clocks.dateLead())
		}
	}
	switch {
	case s == nil && c.longest > 0:
		c.kept("Reset was always ahead, by %v at most", c.longest)
	case s != nil && otherClock == "" && !c.clocks.trustsDate(t) && c.seen.mayHaveBegun(s.shows):
		c.untested(Unobservable.because("Reset had come by Date but not yet by Retry-After: they differ by less than a second, as clocks may"))
	default:
		c.settleDefault(s, otherClock)
	}
}

// judgeLengths wants the Resets of windows that follow one another to be at least one length apart,
// since a window cannot begin before the previous one has ended. A Reset that is already known to
// be wrong shows nothing about lengths; suspicions of the clauses below are not settled yet.
func (c *windowCheck) judgeLengths() {
	if c.seen.resetMoved() != nil || c.isBroken("restored") || c.isBroken("retry-after") {
		return
	}
	for limit, seen := range c.seen.resets {
		lengths := c.part.lengthsOf(limit)
		if len(lengths) == 0 || c.part.hasCalendar() { // a calendar's spans can be shorter
			continue
		}
		shortest := int64(slices.Min(lengths) / time.Second)
		resets := slices.Sorted(maps.Keys(seen))
		for i := 1; i < len(resets); i++ {
			if apart := resets[i] - resets[0]; apart < int64(i)*shortest-1 {
				c.broken(seen[resets[i]], "Reset was %d in one window of %d, and %d windows later it is %d, %d s further: such windows are %v long",
					resets[0], limit, i, resets[i], apart, slices.Min(lengths))
				return
			}
		}
	}
}

// mayHaveBegun reports whether Date had reached Reset before a request was sent, although the
// window may not have ended by Retry-After.
func (h *history) mayHaveBegun(a *answer) bool {
	if a.known == absent || a.known != a.reset {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.tallies {
		if _, _, ok := t.compared(); ok && t.limit == a.limit && t.reset == a.reset {
			return !a.sent.After(t.latest(t.ends))
		}
	}
	return false
}

// noTime reports whether Reset cannot be a time, but perhaps a number of seconds: it is further in
// the past than the longest window is long.
func (a *answer) noTime() bool {
	return a.reset != absent && a.date != absent && a.reset < a.date-int64(weir.MaxSpan/time.Second)
}

// checkResetConstant reads the history's note of a Reset that moved before its window had ended.
func checkResetConstant(c *check) hooks {
	return hooks{
		unseen: Unobservable.because("no two answers of one window had a Reset"),
		drained: func(_ context.Context, s *spending) error {
			switch {
			case s.tally == nil:
				c.untested(s.why)
			case s.judged() && (s.tally.refused > 1 || len(s.tally.admitted) > 1):
				c.kept("%d on all %d answers of the window", s.tally.reset, s.tally.refused+len(s.tally.admitted))
			}
			return nil
		},
		settle: func(_ *suspicion, otherClock string) {
			m := c.seen.resetMoved()
			if m == nil {
				return
			}
			if otherClock != "" && c.clocks.dateIsWrong(c.seen.refusing()) && m.shows.at.Unix() <= m.before-2 {
				c.broken(m.shows, "%s; so it did by the verifier's clock", m.text)
			}
			c.settleDefault(&m.suspicion, otherClock)
		},
	}
}
