package pacer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/headers"
)

// A Transport is an http.RoundTripper that sends each request when there is budget for it. It is safe for concurrent use,
// and everybody who uses a credential should use one Transport, or a Shared view: what a caller does not see it cannot
// pace. Calls of one limiter, host and credential start in the order they came; others do not wait for them.
type Transport struct {
	options Options
	routes  *weir.Routes
	maxWait time.Duration // 0: none
	ledger  ledger
	ways    []egress

	began  time.Time // local times count from here
	origin int64
	dated  atomic.Pointer[dated] // the last

	mu      sync.RWMutex
	aliases map[string]*line // by what a request carries
	lines   map[string]*line // by what the server will make of it
	windows map[string]*window
	sweepAt int
}

// New returns a Transport. nil means the zero Options. It panics where Options cannot be meant: Egress addresses that Base
// cannot send from.
func New(o *Options) *Transport {
	if o == nil {
		o = new(Options)
	}
	t := &Transport{options: *o, routes: o.Routes, maxWait: o.MaxWait, sweepAt: 1024,
		aliases: make(map[string]*line), lines: make(map[string]*line), windows: make(map[string]*window)}
	t.options.setDefaults()
	if t.routes == nil {
		t.routes = contract()
	}
	switch {
	case o.MaxWait == 0:
		t.maxWait = 10 * time.Minute
	case o.MaxWait > maxEstimate:
		t.maxWait = maxEstimate
	case o.MaxWait < 0:
		t.maxWait = 0
	}
	t.began = t.clock()
	t.origin = t.began.UnixNano()
	t.ledger = newLedger(&t.options, t.now)
	t.ways = egresses(&t.options)
	return t
}

func (o *Options) setDefaults() {
	if o.Base == nil {
		o.Base = http.DefaultTransport
	}
	if o.Source == nil {
		o.Source = Source
	}
	if o.Threshold == nil {
		o.Threshold = Threshold
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Retries = or(o.Retries, 10)
	o.MaxBody = or(o.MaxBody, 1<<20)
	o.Jitter = or(o.Jitter, 100*time.Millisecond)
}

// or returns what a setting means: 0 the default, below 0 none.
func or[T int | int64 | time.Duration](v, byDefault T) T {
	if v == 0 {
		return byDefault
	}
	return max(v, 0)
}

// clock is the local time.
func (t *Transport) clock() time.Time { return t.options.Now() }

// now is the local time in nanoseconds: in this process alone one that is never set back, in a view that is shared the one
// that all processes have.
func (t *Transport) now() int64 {
	now := t.clock()
	if t.ledger.shared != nil {
		return now.UnixNano()
	}
	return t.origin + int64(now.Sub(t.began))
}

// RoundTrip sends a request when there is budget for it, and sends it again after a 429. Other answers and errors are returned as
// they come: only what was refused was surely not processed. Besides the errors of Options.Base it returns a *WaitError, which
// http.Client wraps in a *url.Error; errors.As finds it.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		closeBody(r)
		return nil, err
	}
	l := t.line(r)
	defer l.users.Add(-1)
	c := call{ctx: r.Context(), t: t, line: l, most: time.Now().Add(t.maxWait)}
	body := replay{request: r, most: t.options.MaxBody}
	defer body.done()
	for attempt := 1; ; attempt++ {
		p, err := l.enter(&c)
		t.tell()
		if err != nil {
			return nil, err
		}
		response, a, err := t.send(&c, p, &body, attempt)
		t.tell()
		if err != nil {
			return nil, err
		}
		if response.StatusCode != http.StatusTooManyRequests {
			return response, nil
		}
		wait, again, err := t.refused(&c, p, response, a, &body, attempt)
		t.tell()
		if !again {
			return response, nil
		}
		discard(c.ctx, response.Body)
		if err == nil {
			err = c.sleep(wait)
		}
		if err != nil {
			return nil, err
		}
	}
}

// send sends a call that may start, and takes in what comes back, but for a 429.
func (t *Transport) send(c *call, p pass, body *replay, attempt int) (response *http.Response, back answer, err error) {
	back = answer{kind: lost} // also where Base panics
	defer func() {
		if !back.refused {
			c.line.finish(t, p, back)
		}
	}()
	out, err := body.next(attempt)
	if err != nil {
		back.kind = unsent
		return nil, back, err
	}
	if response, err = p.way.base.RoundTrip(out); err != nil {
		back.kind = fate(err)
		return nil, back, err
	}
	back = t.read(response)
	return response, back, nil
}

// refused takes in a 429. again says that it is not the caller's: the call waits and is sent again, or err says why not.
func (t *Transport) refused(c *call, p pass, response *http.Response, a answer, body *replay, attempt int) (wait time.Duration, again bool, err error) {
	wait, known := retryAfter(response.Header)
	a.wait = int64(wait)
	credible := c.line.finish(t, p, a)
	now := t.now()
	if restored := time.Duration(max(c.line.restored(p, now)-now, 0)); credible {
		wait, known = max(wait, restored), true
	}
	again = known && attempt <= t.options.Retries && body.again()
	c.most = time.Now().Add(t.maxWait)
	if again {
		err = c.worthRefused(now, wait)
	}
	if t.options.OnRefused != nil {
		told := time.Duration(a.wait)
		t.options.OnRefused(Refusal{Host: c.line.host, Limiter: c.line.limiter, Attempt: attempt, RetryAfter: told, Again: again && err == nil})
	}
	return wait, again, err
}

// worthRefused returns the error of a call that is not to wait after a 429, nil where it is.
func (c *call) worthRefused(now int64, wait time.Duration) error {
	until := now + int64(wait)
	if deadline, ok := c.ctx.Deadline(); ok && wait > time.Until(deadline) {
		return c.failure(Refused, until, now, context.DeadlineExceeded)
	}
	if wait > c.t.maxWait {
		return c.failure(Refused, until, now, errLonger)
	}
	return nil
}

// tell tells OnSharedFailure, while nothing is locked.
func (t *Transport) tell() {
	if err := t.ledger.failure(); err != nil && t.options.OnSharedFailure != nil {
		t.options.OnSharedFailure(err)
	}
}

// sleep waits before a call is sent again.
func (c *call) sleep(wait time.Duration) error {
	if c.ticket == 0 {
		c.ticket = refusedFirst
	}
	now := c.t.now()
	if jitter := c.jitter(); c.has(int64(wait) + jitter) {
		wait += time.Duration(jitter)
	}
	c.most = c.most.Add(time.Second) // the wait was worth it; so is what is left of it when it is over
	c.say(verdict{why: Refused, until: now + int64(wait)}, now)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.ctx.Done():
		return c.gone()
	}
}

// canonical is how http.Header stores the fields that it spells otherwise.
var canonical = map[string]string{
	headers.Limit:     http.CanonicalHeaderKey(headers.Limit),
	headers.Remaining: http.CanonicalHeaderKey(headers.Remaining),
	headers.Reset:     http.CanonicalHeaderKey(headers.Reset),
}

// field returns the values of a response's field, as a response that was read from a connection has them, or as a handler that
// answers in this process may have left them.
func field(h http.Header) func(string) []string {
	return func(name string) []string {
		if stored, ok := canonical[name]; ok {
			if values := h[stored]; len(values) > 0 {
				return values
			}
		}
		return h[name]
	}
}

// read takes the fields from a response.
func (t *Transport) read(response *http.Response) answer {
	refused := response.StatusCode == http.StatusTooManyRequests
	get, seen := field(response.Header), t.dated.Load()
	dates := response.Header[headers.Date]
	again := seen != nil && !refused && len(dates) == 1 && dates[0] == seen.text // a third of the work, once a second
	f, err := headers.Parse(func(name string) []string {
		if again && name == headers.Date || !refused && name == headers.RetryAfter {
			return nil
		}
		return get(name)
	})
	if err != nil && refused {
		f, err = headers.Parse(func(name string) []string { // what is wrong may be the Retry-After alone
			if name == headers.RetryAfter {
				return nil
			}
			return get(name)
		})
	}
	if age := response.Header["Age"]; err != nil || len(age) > 0 && age[0] != "0" { // a cache repeats what was true once
		return answer{kind: unsaid, refused: refused}
	}
	switch {
	case again:
		f.Date = seen.unix
	case f.Date > 0:
		t.dated.Store(&dated{dates[0], f.Date})
	}
	return answer{kind: binding, fields: f, refused: refused}
}

// A dated is a Date that was read.
type dated struct {
	text string
	unix int64
}

// retryAfter reads how long a 429 asks to wait. A number is believed up to the length of the longest window, and is a second
// at least; so is a date, by the Date of the response.
func retryAfter(h http.Header) (time.Duration, bool) {
	f, err := headers.Parse(func(name string) []string {
		if name == headers.RetryAfter || name == headers.Date {
			return h[name]
		}
		return nil
	})
	if !errors.Is(err, headers.ErrAbsent) || len(h[headers.RetryAfter]) == 0 || f.RetryAfter > longest {
		return 0, false
	}
	return time.Duration(max(f.RetryAfter, 1)) * time.Second, true
}

// fate says of a transport's error whether the request may have reached the server.
func fate(err error) answerKind {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return unsent
	}
	return lost
}

// discard reads what is left of a refusal's body, so that its connection can be used again, and closes it. More than a refusal's
// text, or one that does not come, is not waited for: the connection is given up.
func discard(ctx context.Context, body io.ReadCloser) {
	read := make(chan struct{})
	go func() { // until the body is closed
		defer close(read)
		io.CopyN(io.Discard, body, 64<<10)
	}()
	late := time.NewTimer(100 * time.Millisecond)
	defer late.Stop()
	select {
	case <-read:
	case <-late.C:
	case <-ctx.Done():
	}
	body.Close()
}

// CloseIdleConnections closes the connections that nobody uses.
func (t *Transport) CloseIdleConnections() {
	for _, e := range t.ways {
		if c, ok := e.base.(interface{ CloseIdleConnections() }); ok {
			c.CloseIdleConnections()
		}
	}
}

// Error says what was not sent, why, and when to come back.
func (e *WaitError) Error() string {
	of := "requests to " + e.Host
	if e.Limiter != "" {
		of = "limiter " + e.Limiter + " of " + e.Host
	}
	reason := "the context's deadline is sooner"
	if !errors.Is(e.bound, context.DeadlineExceeded) {
		reason = "that is " + errLonger.Error()
	}
	return fmt.Sprintf("%s: %s for %v, until %s; %s: come back then", of, e.Reason,
		e.Wait.Round(time.Millisecond), e.Until.Format(time.RFC3339), reason)
}

// Unwrap returns context.DeadlineExceeded where the context's deadline was the reason.
func (e *WaitError) Unwrap() error {
	if e.bound == context.DeadlineExceeded {
		return e.bound
	}
	return nil
}

// Timeout reports whether the context's deadline was the reason.
func (e *WaitError) Timeout() bool { return e.bound == context.DeadlineExceeded }

// Temporary reports true: the same call can start later.
func (e *WaitError) Temporary() bool { return true }
