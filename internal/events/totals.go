package events

import (
	"log/slog"
	"sync"
	"sync/atomic"
)

// A result is what became of an event, in the log or at the webhook.
type result uint8

const (
	logged    result = iota // it is a line of the log
	unlogged                // the log had its lines of that second, or the queue was full
	repeated                // the same event was reported before
	delivered               // the receiver accepted it
	rejected                // the receiver answered that it will never accept it
	expired                 // the receiver did not accept it in time
	dropped                 // too many events waited
	unsent                  // the server ended
	results                 // how many there are
)

// resultNames are the values of the label "result".
var resultNames = [results]string{"logged", "unlogged", "repeated", "delivered", "rejected", "expired", "dropped", "unsent"}

// totals count results. The zero value is ready.
type totals struct {
	counts [results]atomic.Int64

	mu       sync.Mutex
	last     error // of the last event that was given up; nil since the last report
	reported [results]int64
}

func (t *totals) add(r result) { t.counts[r].Add(1) }

func (t *totals) read() map[string]int64 {
	all := make(map[string]int64, results)
	for i := range t.counts {
		all[resultNames[i]] = t.counts[i].Load()
	}
	return all
}

// note keeps why an event was given up, for the report.
func (t *totals) note(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = err
}

// report logs one line about the events that were lost since the last report, if any.
func (t *totals) report(log *slog.Logger) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var since [results]int64
	for i := range t.counts {
		now := t.counts[i].Load()
		since[i], t.reported[i] = now-t.reported[i], now
	}
	if since[unlogged] > 0 {
		log.Warn("events were left out of the log, because there were too many", "events", since[unlogged])
	}
	lost := since[rejected] + since[expired] + since[dropped] + since[unsent]
	if lost == 0 {
		return
	}
	all := []any{"lost", lost}
	for r := rejected; r <= unsent; r++ {
		if since[r] > 0 {
			all = append(all, resultNames[r], since[r])
		}
	}
	if t.last != nil {
		all = append(all, "last error", t.last)
		t.last = nil
	}
	log.Warn("events did not reach the webhook", all...)
}
