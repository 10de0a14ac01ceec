package main

import (
	"fmt"
	"math/bits"
	"runtime"
	"time"
)

// The worst decision is found by timing every one, while many windows end and while the table
// grows.

// A histogram counts decisions by their time, with a resolution of a thirty-second.
type histogram struct {
	counts [64 * 32]int64
	n      int64
	worst  time.Duration
	slow   int64         // over a millisecond
	meter  *meter        // nil: the decisions' own time is not measured
	own    time.Duration // the maximum of that
}

// newHistogram returns a histogram. If own is set it also measures the decisions' own time; then
// all goroutines share one core, so that a decision stays on one thread.
func newHistogram(own bool) *histogram {
	if !own {
		return new(histogram)
	}
	runtime.GOMAXPROCS(1)
	return &histogram{meter: new(meter)}
}

// measure times one decision.
func (h *histogram) measure(take func([]byte) bool, k []byte) (allowed bool) {
	if h.meter != nil {
		h.meter.begin()
	}
	start := time.Now()
	allowed = take(k)
	d := time.Since(start)
	if h.meter != nil && d > h.own {
		h.own = max(h.own, h.meter.own(d))
	}
	if d > time.Millisecond {
		h.slow++
	}
	h.worst = max(h.worst, d)
	h.counts[bucket(uint64(max(d, 0)))]++
	h.n++
	return allowed
}

func bucket(v uint64) int {
	if v < 32 {
		return int(v)
	}
	shift := bits.Len64(v) - 6
	return (shift+1)*32 + int(v>>shift) - 32
}

// lowest returns the smallest value of a bucket.
func lowest(b int) uint64 {
	if b < 32 {
		return uint64(b)
	}
	return uint64(b%32+32) << (b/32 - 1)
}

// quantile returns the time in microseconds that a part of the decisions did not exceed.
func (h *histogram) quantile(part float64) float64 {
	left := int64(part * float64(h.n))
	for b := len(h.counts) - 1; b >= 0; b-- {
		if left -= h.counts[b]; left < 0 {
			return float64(lowest(b)) / 1000
		}
	}
	return 0
}

func (h *histogram) figures(f map[string]float64) {
	f["worst"] = float64(h.worst) / 1e6 // ms; the others are µs
	if h.meter != nil {
		f["own"] = float64(h.own) / 1e6
	}
	f["p99.99"] = h.quantile(0.0001)
	f["p99.999"] = h.quantile(0.00001)
	f["median"] = h.quantile(0.5)
	f["slow"] = float64(h.slow)
	f["decisions"] = float64(h.n)
}

const (
	warmKeys = 1000
	// newcomer is the time between two new keys: 250,000 a second.
	newcomer = 4 * time.Microsecond
)

// expire fills the store with all its keys, and then decides on a few others and on new keys until
// every window has ended and every sweep after that is over: r.For counts from the opening of the
// store.
func (c *child) expire(r request, figures map[string]float64) error {
	live := c.setup.Start
	if err := c.fill(0, live); err != nil {
		return err
	}
	if filled := time.Since(c.opened); filled > c.setup.Per {
		return fmt.Errorf("the machine is too slow: the first window ended before the last of %d opened, after %v", live, filled)
	}
	h := newHistogram(r.Own)
	take, next, warm := c.store.worker(), c.keys(), newRandom(1)
	start, fresh := time.Now(), 0
	end := r.For - time.Since(c.opened)
	for now := time.Duration(0); now < end; {
		n := uint64(live) + warm.below(warmKeys)
		if time.Duration(fresh)*newcomer < now && live+warmKeys+fresh < c.setup.Keys {
			n = uint64(live + warmKeys + fresh)
			fresh++
		}
		h.measure(take, next(n))
		now = time.Since(start)
	}
	h.figures(figures)
	return nil
}

// grow decides on new keys, from the store's r.From-th to its r.To-th.
func (c *child) grow(r request, figures map[string]float64) error {
	if err := c.fill(0, r.From); err != nil {
		return err
	}
	h := newHistogram(r.Own)
	take, next := c.store.worker(), c.keys()
	for n := r.From; n < r.To; n++ {
		if !h.measure(take, next(uint64(n))) {
			return fmt.Errorf("key %d was refused its first unit", n)
		}
	}
	h.figures(figures)
	return nil
}
