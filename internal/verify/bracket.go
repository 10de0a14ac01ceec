package verify

import (
	"fmt"
	"time"
)

// A bracket is when something happens by the local clock: after from, and not after to.
type bracket struct {
	from, to time.Time
	torn     bool // some of what it was narrowed by is wrong: they exclude one another
}

func (b bracket) isZero() bool { return b.from.IsZero() }

func (b bracket) width() time.Duration { return b.to.Sub(b.from) }

// narrow returns the intersection. If the two exclude one another, it returns with, torn.
func (b bracket) narrow(with bracket) bracket {
	if b.isZero() {
		return with
	}
	n := b
	if with.from.After(n.from) {
		n.from = with.from
	}
	if with.to.Before(n.to) {
		n.to = with.to
	}
	if n.from.After(n.to) {
		with.torn = true
		return with
	}
	return n
}

// in returns when a window ends that ends some seconds after a time of which the answer gives whole
// seconds. The number of seconds is bounded, since a deployment may send any.
func (a *answer) in(seconds int64) bracket {
	const bound = 1 << 32
	length := time.Duration(min(max(seconds, -bound), bound)) * time.Second
	return bracket{from: a.sent.Add(length - time.Second), to: a.at.Add(length)}
}

// A lead is how far one clock is ahead of another: at least from, at most to.
type lead struct {
	seen, torn bool // torn: some of what it was narrowed by is wrong
	from, to   time.Duration
}

// narrow returns the intersection.
func (l lead) narrow(with lead) lead {
	if !l.seen {
		return with
	}
	l.from, l.to = max(l.from, with.from), min(l.to, with.to)
	l.torn = l.torn || with.torn || l.from > l.to
	return l
}

// mayBeNone reports whether the clocks may agree.
func (l lead) mayBeNone() bool { return l.seen && !l.torn && l.from <= agrees && l.to >= -agrees }

// isSome reports whether the clocks certainly disagree.
func (l lead) isSome() bool { return l.seen && !l.torn && (l.from >= apart || l.to <= -apart) }

// String returns the lead in whole seconds.
func (l lead) String() string {
	middle := (l.from + (l.to-l.from)/2).Round(time.Second)
	if middle < 0 {
		return fmt.Sprintf("%v behind", -middle)
	}
	return fmt.Sprintf("%v ahead of", middle)
}
