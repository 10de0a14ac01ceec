package main

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A wire is the base transport of every caller. It counts what is actually sent and answered.
type wire struct {
	base http.RoundTripper

	mu    sync.Mutex
	found report
}

func newWire(connections int) *wire {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy, t.MaxIdleConns, t.MaxIdleConnsPerHost = nil, connections, connections
	// The server closes a connection without a request for 10 s after its opening, and net/http
	// keeps some that it opened in vain. A POST on such a connection fails, and correctly is not
	// repeated; windows of 10 s make that likely.
	t.IdleConnTimeout = 5 * time.Second
	return &wire{base: t, found: report{RefusedBy: map[int64]int{}, ServedBy: map[int64]int{}}}
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	now := time.Now()
	w.mu.Lock()
	w.found.Sent++
	if w.found.Began.IsZero() {
		w.found.Began = now
	}
	w.mu.Unlock()
	answer, err := w.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	reset, _ := strconv.ParseInt(answer.Header.Get("X-RateLimit-Reset"), 10, 64)
	now = time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch answer.StatusCode {
	case http.StatusTooManyRequests:
		w.found.Refused++
		w.found.RefusedBy[reset]++
	case http.StatusOK:
		w.found.Served++
		w.found.ServedBy[reset]++
		w.found.Ended = now
	}
	return answer, nil
}
