package pacer

import (
	"math"

	"github.com/weirlimit/weir"
)

// A clock bounds how far the server's clock is ahead of the local one, in nanoseconds. Local times
// are nanoseconds from any origin.
//
// A Date is the second in which the server decided, which was after the request was sent and before
// the response arrived. So each response bounds the offset from both sides, and many responses
// bound it more closely than one: after a few, a Reset is known to within a round trip.
type clock struct {
	low, high int64
	at        int64 // local time of the bounds
	set       bool
}

const (
	second        = int64(1e9)
	longestWindow = int64(weir.MaxSpan) / second // seconds; no Reset is further away

	// drift is how much two clocks may diverge, per nanosecond: the rate at which an operating
	// system adjusts one.
	drift = 500e-6
)

// saw handles a date from the server, in Unix seconds. It reports whether the date contradicts the
// bounds: a clock was set since, or another server answers. Then only this date counts.
func (c *clock) saw(date, sent, received int64) (contradicts bool) {
	low, high := toNanos(date)-received, toNanos(date)+second-sent
	old := c.aged(received)
	contradicts = c.set && (old.low > high || low > old.high)
	if c.set && !contradicts {
		low, high = max(low, old.low), min(high, old.high)
	}
	*c = clock{low, high, received, true}
	return contradicts
}

// aged returns the bounds at a later time.
func (c clock) aged(now int64) clock {
	if !c.set {
		return c // only the local clock is known
	}
	parted := int64(float64(max(now-c.at, 0)) * drift)
	return clock{c.low - parted, c.high + parted, now, c.set}
}

// reaches returns the latest local time at which the server's clock reaches a Unix second.
func (c clock) reaches(unix, now int64) int64 {
	return toNanos(unix) - c.aged(now).low
}

// now returns the earliest second that the server's clock can show.
func (c clock) now(now int64) int64 { return (now + c.aged(now).low) / second }

// toNanos returns a Unix second in nanoseconds, clamped to the range of int64.
func toNanos(unix int64) int64 { return min(max(unix, 0), math.MaxInt64/second/2) * second }
