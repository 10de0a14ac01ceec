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
)

// A Transport is an http.RoundTripper that sends each request when there is budget for it. It is
// safe for concurrent use. All users of a credential should use one Transport, or a Shared view: it
// cannot pace what it does not see. Calls of one limiter, host and credential start in the order of
// their arrival; other calls do not wait for them.
type Transport struct {
	options Options
	routes  *weir.Routes
	maxWait time.Duration // 0: none
	ledger  ledger
	ways    []egress

	began  time.Time // the origin of local times
	origin int64
	dated  atomic.Pointer[dated] // the last Date that was read

	mu      sync.RWMutex
	aliases map[string]*line // by requestKey
	lines   map[string]*line // by what the server will count by
	windows map[string]*window
	slots   map[string]*slots
	sweepAt int
}

// New returns a Transport. Nil means the zero Options. New panics for Egress addresses that Base
// cannot send from.
func New(o *Options) *Transport {
	if o == nil {
		o = new(Options)
	}
	t := &Transport{options: *o, routes: o.Routes, maxWait: o.MaxWait, sweepAt: 1024,
		aliases: make(map[string]*line), lines: make(map[string]*line), windows: make(map[string]*window), slots: make(map[string]*slots)}
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
	if o.Credentials == nil {
		o.Credentials = []string{"Authorization", "X-Api-Key"}
	}
	names := make([]string, len(o.Credentials))
	for i, name := range o.Credentials {
		names[i] = http.CanonicalHeaderKey(name)
	}
	o.Credentials = names
	o.Retries = or(o.Retries, 10)
	o.MaxBody = or(o.MaxBody, 1<<20)
	o.Jitter = or(o.Jitter, 100*time.Millisecond)
}

// or returns the value of a setting: 0 means the default, a negative value none.
func or[T int | int64 | time.Duration](v, byDefault T) T {
	if v == 0 {
		return byDefault
	}
	return max(v, 0)
}

// clock returns the local time.
func (t *Transport) clock() time.Time { return t.options.Now() }

// now returns the local time in nanoseconds: in one process a time that is never set back, in a
// shared view the time that all processes have.
func (t *Transport) now() int64 {
	now := t.clock()
	if t.ledger.shared != nil {
		return now.UnixNano()
	}
	return t.origin + int64(now.Sub(t.began))
}

// RoundTrip sends a request when there is budget for it, and sends it again after a 429. It returns
// other responses and errors unchanged: only a refused request was certainly not processed. Besides
// the errors of Options.Base it returns a *WaitError, which http.Client wraps in a *url.Error;
// errors.As finds it.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		closeBody(r)
		return nil, err
	}
	c := call{ctx: r.Context(), t: t, request: r, line: t.line(r), giveUp: time.Now().Add(t.maxWait)}
	defer func() {
		c.release()
		c.line.users.Add(-1)
	}()
	body := replay{request: r, maxKept: t.options.MaxBody}
	defer body.done()
	for attempt := 1; ; attempt++ {
		p, err := c.start()
		t.reportFailure()
		if err != nil {
			return nil, err
		}
		response, a, err := t.send(&c, p, &body, attempt)
		t.reportFailure()
		if err != nil {
			return nil, err
		}
		if response.StatusCode != http.StatusTooManyRequests {
			c.untilEnded(p, response)
			return response, nil
		}
		c.release()
		wait, again, err := t.refused(&c, p, response, a, &body, attempt)
		t.reportFailure()
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

// untilEnded holds what an admitted call holds until its answer has ended.
func (c *call) untilEnded(p pass, response *http.Response) {
	charged, held := c.line.charged(p), c.held
	if held == nil && charged.n == 0 {
		return
	}
	c.held = nil
	after(c.ctx, response, func() {
		held.release()
		for i := range charged.n {
			charged.of[i].endedIn(charged.reset[i], charged.units[i])
		}
	})
}

// send sends a call that may start, and handles any answer except a 429.
func (t *Transport) send(c *call, p pass, body *replay, attempt int) (response *http.Response, back answer, err error) {
	back = answer{kind: lost} // also after a panic of Base
	defer func() {
		if !back.refused {
			c.finish(p, back)
		}
	}()
	out, err := body.next(attempt)
	if err != nil {
		back.kind = unsent
		return nil, back, err
	}
	if response, err = t.attempt(p.way.base, out); err != nil {
		back.kind = outcome(err)
		return nil, back, err
	}
	back = t.read(response)
	return response, back, nil
}

// refused handles a 429. If again is true the call waits and is sent again, or fails with err;
// otherwise the 429 goes to the caller.
func (t *Transport) refused(c *call, p pass, response *http.Response, a answer, body *replay, attempt int) (wait time.Duration, again bool, err error) {
	wait, known := retryAfter(response.Header)
	a.wait = int64(wait)
	if c.line.slots.refusedBy(p, a) {
		a.kind = unsent // no window was charged
	}
	until := c.finish(p, a)
	now := t.now()
	if until > 0 { // of this refusal; other windows are asked before the call is sent again
		wait, known = max(wait, time.Duration(until-now)), true
	}
	again = known && attempt <= t.options.Retries && body.again()
	c.certain = attempt > t.options.Retries/2
	c.giveUp = time.Now().Add(t.maxWait)
	if again {
		err = c.checkRefusedWait(now, wait)
	}
	if t.options.OnRefused != nil {
		asked := time.Duration(a.wait)
		t.options.OnRefused(Refusal{Host: c.line.host, Limiter: c.line.limiter, Attempt: attempt, RetryAfter: asked, Again: again && err == nil})
	}
	return wait, again, err
}

// checkRefusedWait returns an error for a call that should not wait after a 429.
func (c *call) checkRefusedWait(now int64, wait time.Duration) error {
	until := now + int64(wait)
	if deadline, ok := c.ctx.Deadline(); ok && wait > time.Until(deadline) {
		return c.failure(Refused, until, now, context.DeadlineExceeded)
	}
	if wait > c.t.maxWait {
		return c.failure(Refused, until, now, errLonger)
	}
	return nil
}

// reportFailure calls OnSharedFailure, while nothing is locked.
func (t *Transport) reportFailure() {
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
	c.giveUp = c.giveUp.Add(time.Second) // the wait was accepted; so is the rest of it
	c.notify(verdict{why: Refused, until: now + int64(wait)}, now)
	early, cancel := c.beforeDeadline()
	defer cancel()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-early.Done():
		return c.gone(Refused, now+int64(wait))
	}
}

// outcome returns whether the request may have reached the server, given a transport's error.
func outcome(err error) answerKind {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return unsent
	}
	return lost
}

// discard reads the rest of a refusal's body, so that its connection can be used again, and closes
// it. If the body is long or slow, discard closes it early, and the connection is lost.
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

// CloseIdleConnections closes idle connections.
func (t *Transport) CloseIdleConnections() {
	for _, e := range t.ways {
		if c, ok := e.base.(interface{ CloseIdleConnections() }); ok {
			c.CloseIdleConnections()
		}
	}
}

// Error describes what was not sent and why, what to change, and when to try again.
func (e *WaitError) Error() string {
	of := "requests to " + e.Host
	if e.Limiter != "" {
		of = "limiter " + e.Limiter + " of " + e.Host
	}
	bound, hint := errLonger.Error(), "raise that"
	if e.Timeout() {
		bound = "longer than the request's deadline at " + e.Deadline.Format(deadlineForm) + " allows"
		hint = "give the call a context with a later deadline; http.Client.Timeout sets one that covers the wait: leave it 0 and set Options.AttemptTimeout"
	}
	unsent := "was not sent"
	if e.Reason == Refused {
		unsent = "was not sent again"
	}
	return fmt.Sprintf("%s: %s; the request %s, because it would wait %v, %s: come back at %s, or %s", of, e.Reason, unsent,
		e.Wait.Round(time.Millisecond), bound, e.Until.Format(deadlineForm), hint)
}

// deadlineForm is a time to the millisecond: deadlines may be near.
const deadlineForm = "2006-01-02T15:04:05.000Z07:00"

// Unwrap returns context.DeadlineExceeded if the context's deadline was the reason.
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
