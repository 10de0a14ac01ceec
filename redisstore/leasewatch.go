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

// with calls do for what was observed of a window, unless w is nil or is another window's by now.
func (w *watched) with(x hash, do func(t *lease.Trend)) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.low == x.lo {
		do(&w.trend)
	}
}

// note records what this node has spent of a window since the last answer, and what the server
// counts with the cost of the charge, without the units that it granted.
func (w *watched) note(x hash, c *weir.Charge, now time.Duration, own, count, granted, reset int64) {
	w.with(x, func(t *lease.Trend) {
		w.used.Store(int64(now))
		t.Note(now, time.Duration(c.Per)*time.Second, own, count-c.Cost, count+granted, reset)
	})
}

// noteOther records a request that leased units could not serve, and that lasted until now.
func (w *watched) noteOther(x hash, c *weir.Charge, now, lasted time.Duration) {
	w.with(x, func(t *lease.Trend) { t.Other(max(1, c.Cost), now, lasted) })
}

// noteRefused records that the server has refused a take: as long as it does, no units are left to
// wish for.
func (w *watched) noteRefused(x hash, used weir.Used) {
	w.with(x, func(t *lease.Trend) { t.Refused(used.Count, used.Reset) })
}

// noteGaveBack records that units of a window went back to the server.
func (w *watched) noteGaveBack(x hash, reset int64) {
	w.with(x, func(t *lease.Trend) { t.GaveBack(reset) })
}

// noteSlow records that a take was slow because units are leased.
func (w *watched) noteSlow(x hash, now time.Duration) {
	w.with(x, func(t *lease.Trend) { t.Slow(now) })
}

// forget forgets what was observed.
func (w *watched) forget(x hash) {
	w.with(x, func(t *lease.Trend) { *t = lease.Trend{} })
}

// wish is Trend.Wish and Trend.Suits.
func (w *watched) wish(x hash, c *weir.Charge, now time.Duration, second, waiting int64) (wish lease.Wish, suits bool) {
	w.with(x, func(t *lease.Trend) {
		wish, suits = t.Wish(now, time.Duration(c.Per)*time.Second, c.Limit, second, waiting), t.Suits(now)
	})
	return wish, suits
}

// rate is Trend.Rate of the window of a charge.
func (w *watched) rate(x hash, c *weir.Charge, now time.Duration) (rate float64) {
	w.with(x, func(t *lease.Trend) { rate = t.Rate(now, time.Duration(c.Per)*time.Second) })
	return rate
}

// patience is Trend.Patience of the window of a charge.
func (w *watched) patience(x hash, c *weir.Charge) time.Duration {
	patience := time.Second
	w.with(x, func(t *lease.Trend) { patience = t.Patience(time.Duration(c.Per) * time.Second) })
	return patience
}

// spendsAlone is Trend.Alone of the window.
func (w *watched) spendsAlone(x hash, u weir.Used) (alone bool) {
	w.with(x, func(t *lease.Trend) { alone = t.Alone(u.Reset, u.Count) })
	return alone
}
