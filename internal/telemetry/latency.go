package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// latencyBounds are the upper bounds of the buckets. A decision in this process takes some hundred
// nanoseconds; one that waits for a shared store takes up to the store deadline.
var latencyBounds = [...]time.Duration{
	100, 200, 500,
	time.Microsecond, 2 * time.Microsecond, 5 * time.Microsecond,
	10 * time.Microsecond, 20 * time.Microsecond, 50 * time.Microsecond,
	100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second,
}

// durationBounds are the upper bounds of the buckets of whole requests, and of the upstream's time.
var durationBounds = [...]time.Duration{
	500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second,
	10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute,
}

// A latency is a histogram in lanes. (prometheus.Histogram adds to a sum that all cores share,
// which would cost more than the rest of an observation.)
type latency struct {
	bounds []time.Duration // at most as many as latencyBounds
	cells  []latencyCell
}

type latencyCell struct {
	buckets [len(latencyBounds) + 1]atomic.Uint64
	sum     atomic.Int64 // nanoseconds
	_       [64]byte     // pads to pairs of cache lines: 256 bytes
}

func (h *latency) init(lanes int, bounds []time.Duration) {
	h.bounds, h.cells = bounds, make([]latencyCell, lanes)
}

func (h *latency) observe(lane int, took time.Duration) {
	c := &h.cells[lane]
	i := 0
	for i < len(h.bounds) && took > h.bounds[i] {
		i++
	}
	c.buckets[i].Add(1)
	c.sum.Add(int64(took))
}

// metric returns the current histogram.
func (h *latency) metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(h.bounds))
	var count uint64
	var sum int64
	for i := range len(h.bounds) + 1 {
		for lane := range h.cells {
			count += h.cells[lane].buckets[i].Load()
		}
		if i < len(h.bounds) {
			buckets[h.bounds[i].Seconds()] = count
		}
	}
	for lane := range h.cells {
		sum += h.cells[lane].sum.Load()
	}
	return prometheus.MustNewConstHistogram(desc, count, time.Duration(sum).Seconds(), buckets, labels...)
}
