package replay

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A delay is how long requests waited.
type delay struct {
	histogram *hdrhistogram.Histogram // milliseconds, within 1 %
	n         int64
	sum, max  float64 // seconds
	gaveUp    int64
	noRoom    int64
}

func newDelay() *delay {
	return &delay{histogram: hdrhistogram.New(1, int64(maxPatience/time.Millisecond), 2)}
}

// served records a request that was served after a wait. took is in nanoseconds.
func (d *delay) served(took int64) {
	_ = d.histogram.RecordValue(took / int64(time.Millisecond)) // patience bounds it
	seconds := float64(took) / float64(time.Second)
	d.n++
	d.sum += seconds
	d.max = max(d.max, seconds)
}

// result returns the Delay for the report. A nil d means that nothing waited.
func (d *delay) result() *Delay {
	if d == nil {
		return &Delay{}
	}
	out := &Delay{Delayed: d.n, GaveUp: d.gaveUp, NoRoom: d.noRoom, Max: d.max}
	if d.n == 0 {
		return out
	}
	at := func(percent float64) float64 {
		return min(float64(d.histogram.ValueAtQuantile(percent))/1e3, d.max)
	}
	out.Mean, out.P50, out.P95, out.P99 = d.sum/float64(d.n), at(50), at(95), at(99)
	return out
}
