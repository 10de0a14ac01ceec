package replay

import (
	"math"
	"math/bits"

	"github.com/axiomhq/hyperloglog"

	"github.com/weirlimit/weir"
)

// The lowest limit that touches few enough.
//
// A window opens with a caller's first request after the last one's end, whatever the limit is: that request fits into every limit
// that its cost fits into. So where one window's limit alone refuses, the windows of a caller are the same ones under every limit, and
// it is refused something if, and only if, in one of them it asks for more units than the limit. The most that it ever asks for is
// thus the lowest limit that does not touch it, and how many callers each limit touches follows from these peaks alone.
//
// That holds for callers who follow the limit. What others spend of the same budget (exempt ones, ones with limits of their own) is
// in the peak as it would be if nobody who follows it were refused. It says nothing of a limiter's other windows: each is judged as if
// it stood alone.

// recommend returns the lowest limit of a window that touches no more than a share of the callers who follow it; nil where there are
// none, where no limit that is allowed does, or where too much was forgotten to tell.
func (c *callers) recommend(share float64, cost int64, highest uint32) *Recommend {
	of := c.count(follows)
	if of.N == 0 {
		return nil
	}
	var r Recommend
	if c.estimates == nil {
		r = c.exactly(most(share, of.N), cost)
	} else if c.estimates.broken > 0 {
		return nil
	} else {
		r = c.about(most(share, of.N), cost, highest)
	}
	if r.Limit > weir.MaxLimit {
		return nil
	}
	r.Callers = of
	r.Share = float64(r.Touches.N) / float64(of.N)
	return &r
}

// most returns how many of n callers are at most a share of them.
func most(share float64, n int64) int64 {
	k := int64(math.Floor(share * float64(n)))
	for k > 0 && float64(k)/float64(n) > share {
		k--
	}
	for k < n && float64(k+1)/float64(n) <= share {
		k++
	}
	return min(k, n)
}

// exactly returns the lowest limit that touches at most k callers: the peak of the one after the k highest.
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
	if r.Limit < cost { // all may be touched: but a request must fit
		r.Limit, r.Touches.N = cost, 0
		peaks(func(p uint32) {
			if int64(p) > cost {
				r.Touches.N++
			}
		})
	}
	return r
}

// about is exactly where callers were forgotten: one who came back has several peaks, of which the highest counts, so it is looked for
// in the union of all that are above a limit. Limits are tried in steps of an eighth at most; that the estimate of a union may be too
// low is allowed for.
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
		_ = above.Merge(s.peaks[b]) // of one precision
	}
	return r
}

// Peaks are kept in buckets: one each up to 8, and then 8 to each doubling.
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
