package pacer

import (
	"math"

	"github.com/weirlimit/weir"
)

// A clock is what is known of the server's clock: bounds of how far it is ahead of the local one, in nanoseconds. Local
// times are nanoseconds too, counted from anywhere.
//
// A Date says which second the server was in when it decided, and that was after the request left and before the response
// came. Each response so bounds the offset from both sides, and the bounds of many responses lie closer together than those of
// any: after a few, a Reset is known to a round trip.
type clock struct {
	low, high int64
	at        int64 // when the bounds were true
	set       bool
}

const (
	second  = int64(1e9)
	longest = int64(weir.MaxPer) / second // seconds: no window is longer

	// drift is how much two clocks may part, per nanosecond: as fast as an operating system corrects one.
	drift = 500e-6
)

// saw takes in a date that the server gave, in Unix seconds. It reports whether that contradicts what was known: a clock was set
// since, or another server answers, and only this date is true.
func (c *clock) saw(date, sent, received int64) (contradicts bool) {
	low, high := held(date)-received, held(date)+second-sent
	old := c.aged(received)
	contradicts = c.set && (old.low > high || low > old.high)
	if c.set && !contradicts {
		low, high = max(low, old.low), min(high, old.high)
	}
	*c = clock{low, high, received, true}
	return contradicts
}

// aged is the clock as far as it is known later.
func (c clock) aged(now int64) clock {
	if !c.set {
		return c // the local clock is all there is
	}
	parted := int64(float64(max(now-c.at, 0)) * drift)
	return clock{c.low - parted, c.high + parted, now, c.set}
}

// reaches returns the local time at which the server's clock has reached a Unix second, at the latest.
func (c clock) reaches(unix, now int64) int64 {
	return held(unix) - c.aged(now).low
}

// now returns the second that the server's clock shows, at the earliest.
func (c clock) now(now int64) int64 { return (now + c.aged(now).low) / second }

// held is a Unix second in nanoseconds; one that is too large is held.
func held(unix int64) int64 { return min(max(unix, 0), math.MaxInt64/second/2) * second }
