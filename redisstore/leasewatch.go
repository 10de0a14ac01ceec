package redisstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/lease"
)

// A watched is what this process observes of a window. Its place may be another window's by the
// time it is used: then nothing is recorded, and nothing is known.
type watched struct {
	used  atomic.Int64 // when a take was last noted: a time.Duration
	mu    sync.Mutex
	low   uint64 // the lower half of the window's hash
	trend lease.Trend
}

func (w *watched) begin(x hash, now time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.low, w.trend = x.lo, lease.Trend{}
	w.used.Store(int64(now))
}

// of locks the observation of a window, and reports whether it is still that. If it is not, or w is
// nil, it is not locked.
func (w *watched) of(x hash) bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	if w.low == x.lo {
		return true
	}
	w.mu.Unlock()
	return false
}

// note records what this node has spent of a window since the last answer, and what the server
// counts with the cost of the charge, without the units that it granted.
func (w *watched) note(x hash, c *weir.Charge, now time.Duration, own, count, granted, reset int64) {
	if !w.of(x) {
		return
	}
	defer w.mu.Unlock()
	w.used.Store(int64(now))
	w.trend.Note(now, time.Duration(c.Per)*time.Second, own, count-c.Cost, count+granted, reset)
}

// noteOther records a request that leased units could not serve, and that lasted until now.
func (w *watched) noteOther(x hash, c *weir.Charge, now, lasted time.Duration) {
	if !w.of(x) {
		return
	}
	defer w.mu.Unlock()
	w.trend.Other(max(1, c.Cost), now, lasted)
}

// noteRefused records that the server has refused a take: as long as it does, no units are left to
// wish for.
func (w *watched) noteRefused(x hash, used weir.Used) {
	if !w.of(x) {
		return
	}
	defer w.mu.Unlock()
	w.trend.Refused(used.Count, used.Reset)
}

// noteSlow records that a take was slow because units are leased.
func (w *watched) noteSlow(x hash, now time.Duration) {
	if !w.of(x) {
		return
	}
	defer w.mu.Unlock()
	w.trend.Slow(now)
}

// forget forgets what was observed.
func (w *watched) forget(x hash) {
	if !w.of(x) {
		return
	}
	defer w.mu.Unlock()
	w.trend = lease.Trend{}
}

// wish is Trend.Wish and Trend.Suits.
func (w *watched) wish(x hash, c *weir.Charge, now time.Duration, second, waiting int64) (wish lease.Wish, suits bool) {
	if !w.of(x) {
		return lease.Wish{}, false
	}
	defer w.mu.Unlock()
	return w.trend.Wish(now, time.Duration(c.Per)*time.Second, c.Limit, second, waiting), w.trend.Suits(now)
}

// rate is Trend.Rate of the window of a charge.
func (w *watched) rate(x hash, c *weir.Charge, now time.Duration) float64 {
	if !w.of(x) {
		return 0
	}
	defer w.mu.Unlock()
	return w.trend.Rate(now, time.Duration(c.Per)*time.Second)
}

// patience is Trend.Patience of the window of a charge.
func (w *watched) patience(x hash, c *weir.Charge) time.Duration {
	if !w.of(x) {
		return time.Second
	}
	defer w.mu.Unlock()
	return w.trend.Patience(time.Duration(c.Per) * time.Second)
}

// spendsAlone is Trend.Alone of the window.
func (w *watched) spendsAlone(x hash, u weir.Used) bool {
	if !w.of(x) {
		return false
	}
	defer w.mu.Unlock()
	return w.trend.Alone(u.Reset, u.Count)
}
