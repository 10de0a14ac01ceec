package rules

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// An outage keeps the log to a few lines while requests to a site get no answer: one for the first
// of each kind (answered 502, and 504), one every few minutes, and a summary at the end. The access
// log has each of them. The zero value is no outage. It is safe for concurrent use.
type outage struct {
	mu          sync.Mutex
	timer       *time.Timer // nil: there is no outage
	first, last time.Time   // of the requests without an answer
	noticed     time.Time   // when the log last had a line
	failure     error       // of the last
	of          *Site
	log         *slog.Logger

	unavailable, timeout int64 // answered 502, and 504
}

const (
	// outageQuiet is for how long no request may be without an answer for an outage to be over.
	outageQuiet = 10 * time.Second
	// outageNotice is how often the log has that an outage continues.
	outageNotice = 5 * time.Minute
)

// note counts a request to a site that was answered status because of failure. It reports whether
// that is the first with its status in an outage.
func (o *outage) note(status int, failure error, of *Site, log *slog.Logger) (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.timer == nil {
		o.first, o.noticed, o.of, o.log = now, now, of, log
		o.unavailable, o.timeout = 0, 0
		o.timer = time.AfterFunc(outageQuiet, o.look)
	}
	o.last, o.failure = now, failure
	n := &o.unavailable
	if status == http.StatusGatewayTimeout {
		n = &o.timeout
	}
	*n++
	return *n == 1
}

// look ends the outage if it is over, and else looks again.
func (o *outage) look() {
	o.looked(time.Now()).write()
}

// looked is look without the log.
func (o *outage) looked(now time.Time) *outageLine {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer == nil {
		return nil
	}
	if left := outageQuiet - now.Sub(o.last); left > 0 {
		o.timer.Reset(left)
		if now.Sub(o.noticed) < outageNotice {
			return nil
		}
		o.noticed = now
		return o.line("requests to an upstream still get no answer")
	}
	message := fmt.Sprintf("no request to the upstream has failed for %v", outageQuiet)
	if !o.of.isUp() {
		message += ", but all of its addresses are still down"
	}
	return o.end(message)
}

// stop ends the outage, if there is one, because the server ends.
func (o *outage) stop() {
	o.stopped().write()
}

// stopped is stop without the log.
func (o *outage) stopped() *outageLine {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer == nil {
		return nil
	}
	o.timer.Stop()
	return o.end(fmt.Sprintf("the server ends less than %v after a request to the upstream has failed", outageQuiet))
}

// end returns the summary; nil if the log has all of it. The mutex is held.
func (o *outage) end(message string) (summary *outageLine) {
	o.timer = nil
	if o.unavailable+o.timeout > 1 {
		summary = o.line(message)
	}
	o.failure, o.of = nil, nil
	return summary
}

// line returns a line with what was counted. The mutex is held.
func (o *outage) line(message string) *outageLine {
	return &outageLine{o.log, message, []any{"site", o.of.name(), "answered_502", o.unavailable, "answered_504", o.timeout,
		"lasted_ms", o.last.Sub(o.first).Milliseconds(), "last_error", o.failure}}
}

// An outageLine is a line for the log. It is written without the mutex, since requests take that
// one and must not wait for the log.
type outageLine struct {
	log     *slog.Logger
	message string
	values  []any
}

// write logs the line; nil is none.
func (l *outageLine) write() {
	if l != nil {
		l.log.Warn(l.message, l.values...)
	}
}

// EndOutages writes the summaries of the outages that are not over. A server that ends calls it.
func (r *Rules) EndOutages() {
	for _, s := range r.Sites {
		s.outage.stop()
	}
}
