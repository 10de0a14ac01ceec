package rules

import (
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// An outage keeps the log to a few lines while requests to a site get no answer: one for the first,
// one every few minutes, and a summary when it is over. The access log has each of them. The zero
// value is no outage. It is safe for concurrent use.
type outage struct {
	mu          sync.Mutex
	timer       *time.Timer // nil: there is no outage
	first, last time.Time   // of the requests without an answer
	noticed     time.Time   // when the log last had a line
	site        string
	log         *slog.Logger

	unavailable, timeout int64 // answered 502, and 504
}

const (
	// outageQuiet is for how long no request may be without an answer for an outage to be over.
	outageQuiet = 10 * time.Second
	// outageNotice is how often the log has that an outage continues.
	outageNotice = 5 * time.Minute
)

// note counts a request that was answered status. It reports whether that is the first of an
// outage.
func (o *outage) note(status int, site string, log *slog.Logger) (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	first = o.timer == nil
	if first {
		o.first, o.noticed, o.site, o.log = now, now, site, log
		o.unavailable, o.timeout = 0, 0
		o.timer = time.AfterFunc(outageQuiet, o.look)
	}
	o.last = now
	if status == http.StatusGatewayTimeout {
		o.timeout++
	} else {
		o.unavailable++
	}
	return first
}

// look ends the outage if it is over, and else looks again.
func (o *outage) look() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer == nil {
		return
	}
	now := time.Now()
	if left := outageQuiet - now.Sub(o.last); left > 0 {
		if now.Sub(o.noticed) >= outageNotice {
			o.noticed = now
			o.write("requests to an upstream still get no answer")
		}
		o.timer.Reset(left)
		return
	}
	o.end()
}

// stop ends the outage, if there is one.
func (o *outage) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer != nil {
		o.timer.Stop()
		o.end()
	}
}

// end writes the summary, unless the log has all of it. The mutex is held.
func (o *outage) end() {
	o.timer = nil
	if o.unavailable+o.timeout > 1 {
		o.write("no more requests to the upstream are without an answer")
	}
}

// write logs what was counted. The mutex is held.
func (o *outage) write(message string) {
	o.log.Warn(message, "host", o.site, "answered_502", o.unavailable, "answered_504", o.timeout, "time", o.last.Sub(o.first).Round(time.Millisecond))
}

// EndOutages writes the summaries of the outages that are not over. A server that ends calls it.
func (r *Rules) EndOutages() {
	for _, s := range r.Sites {
		s.outage.stop()
	}
}
