package replay

import (
	"math"
	"math/bits"

	"github.com/axiomhq/hyperloglog"

	"github.com/weirlimit/weir"
)

// The lowest limit that touches few enough callers.
//
// A window opens with a caller's first request after the end of the last one, whatever the limit
// is, because that request fits every limit that its cost fits. So if only one window's limit
// refuses, a caller's windows are the same under every limit, and it is refused if and only if it
// asks in one of them for more units than the limit. Its peak, the maximum that it ever asks for,
// is thus the lowest limit that does not touch it, and the peaks alone determine how many callers
// each limit touches.
//
// That holds for callers that the limit applies to. If others, which are exempt or have limits of
// their own, spend from the same budget, the peak includes that as if none of the first were
// refused. The result ignores a limiter's other windows: each window is taken alone.

// recommend returns the lowest limit of a window that touches at most a share of the callers that
// it applies to. It returns nil if there are none, if no valid limit does, or if too much was
// forgotten.
func (c *callers) recommend(share float64, cost int64, highest uint32) *Recommend {
	of := c.count(follows)
	if of.N == 0 {
		return nil
	}
	var r Recommend
	if c.estimates == nil {
		r = c.exactly(maxTouched(share, of.N), cost)
	} else if c.estimates.broken > 0 {
		return nil
	} else {
		r = c.about(maxTouched(share, of.N), cost, highest)
	}
	if r.Limit > weir.MaxLimit {
		return nil
	}
	r.Callers = of
	r.Share = float64(r.Touches.N) / float64(of.N)
	return &r
}

// maxTouched returns how many of n callers are at most a share of them.
func maxTouched(share float64, n int64) int64 {
	k := int64(math.Floor(share * float64(n)))
	for k > 0 && float64(k)/float64(n) > share {
		k--
	}
	for k < n && float64(k+1)/float64(n) <= share {
		k++
	}
	return min(k, n)
}

// exactly returns the lowest limit that touches at most k callers: the peak of the caller after the
// k highest.
func (c *callers) exactly(k, cost int64) Recommend {
	var counts [1 << 16]int64
	descend := func() (value int, above int64) {
		for value = len(counts) - 1; value > 0; value-- {
			if above+counts[value] > k {
				break
			}
			above += counts[value]
		}
		return value, above
	}
	peaks := func(visit func(peak uint32)) {
		c.each(func(e *entry) {
			if e.has(follows) {
				visit(e.peak)
			}
		})
	}
	peaks(func(p uint32) { counts[p>>16]++ })
	high, above := descend()
	counts, k = [1 << 16]int64{}, k-above
	peaks(func(p uint32) {
		if int(p>>16) == high {
			counts[p&0xffff]++
		}
	})
	low, more := descend()
	r := Recommend{Limit: int64(high<<16 | low), Touches: Count{N: above + more}}
	if r.Limit < cost { // all callers may be touched, but a request must fit
		r.Limit, r.Touches.N = cost, 0
		peaks(func(p uint32) {
			if int64(p) > cost {
				r.Touches.N++
			}
		})
	}
	return r
}

// about is exactly for evicted callers: a caller that came back has several peaks, of which the
// highest counts, so about estimates the union of all peaks above a limit. It tries limits in steps
// of at most an eighth, and adds a margin for the error of the estimate.
func (c *callers) about(k, cost int64, highest uint32) Recommend {
	s := c.estimates
	c.each(func(e *entry) {
		if e.has(follows) {
			s.notePeak(e)
		}
	})
	const margin = 1.05 // three times the standard error of 2¹² registers
	var above hyperloglog.Sketch
	r := Recommend{Limit: int64(highest), Touches: Count{Estimated: true}}
	for b := peakBuckets - 1; b >= 0; b-- {
		limit := min(topOf(b), int64(highest))
		if limit < cost {
			break
		}
		touches := int64(above.Estimate())
		if float64(touches)*margin > float64(k) {
			break
		}
		r.Limit, r.Touches.N = limit, touches
		_ = above.Merge(s.peaks[b]) // both have one precision
	}
	return r
}

// peakBuckets is the number of buckets for peaks: one for each peak up to 8, then 8 for each
// doubling.
const peakBuckets = 8 + 29*8

func peakBucket(peak uint32) int {
	if peak < 8 {
		return int(peak)
	}
	shift := bits.Len32(peak) - 4
	return 8 + shift*8 + int(peak>>shift)&7
}

// topOf returns the highest peak of a bucket.
func topOf(b int) int64 {
	if b < 8 {
		return int64(b)
	}
	shift := (b - 8) / 8
	return int64(8+(b-8)%8+1)<<shift - 1
}
