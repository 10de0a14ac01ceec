package pacer

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/weirlimit/weir"
)

// slots are the calls of one caller that may be in flight at a time (D29), as the limiter of the
// routes declares. Lines share them. A call holds one from before it is sent until its answer has
// ended, but not while it waits for its budget. Calls get them in the order in which they ask.
// Other processes of the caller hold slots that this one does not see.
type slots struct {
	key   string // identifies them among the slots of this process
	limit int64
	free  *semaphore.Weighted
}

// slotsOf returns the slots of a request's caller, or nil if its limiter has no limit in flight.
func (t *Transport) slotsOf(r *http.Request, host string, limiter *weir.Limiter) *slots {
	f := limiter.InFlight
	if f.Limit == 0 {
		return nil
	}
	parts := []string{r.URL.Scheme, host, limiter.Name, f.Key.String()}
	for _, part := range f.Key {
		source, value := t.answer(r, part)
		if source != "ip" {
			value, _ = subject(source, value)
		}
		parts = append(parts, source, value)
	}
	return &slots{name(parts...), f.Limit, semaphore.NewWeighted(f.Limit)}
}

// start waits until the call may start: until it holds a slot, if there are any, and there is
// budget for it. While it waits for its budget it holds no slot: calls of other windows may use it.
// An error is a *WaitError or the context's.
func (c *call) start() (pass, error) {
	for again := false; ; again = true {
		if err := c.hold(again); err != nil {
			return pass{}, err
		}
		p, err := c.enter()
		if err != nil || c.holdAgain() {
			return p, err
		}
		c.finish(p, answer{kind: unsent}) // other calls took the slots meanwhile
	}
}

// hold waits for a slot, which the call then holds. Without slots it does nothing. again means that
// the call has waited for one before, so that it does not get more time.
func (c *call) hold(again bool) error {
	s := c.line.slots
	if s == nil {
		return nil
	}
	if !s.free.TryAcquire(1) {
		if err := c.awaitSlot(s); err != nil {
			return err
		}
		if !again {
			c.giveUp = time.Now().Add(c.t.maxWait) // of the wait for the budget
		}
	}
	c.held = s
	return nil
}

// holdAgain reports whether the call holds a slot, which it may have given back while it waited for
// its budget. It does not wait.
func (c *call) holdAgain() bool {
	s := c.line.slots
	if c.held == s {
		return true
	}
	if !s.free.TryAcquire(1) {
		return false
	}
	c.held = s
	return true
}

// release gives back the slot that the call holds, if it holds one.
func (c *call) release() {
	c.held.release()
	c.held = nil
}

func (s *slots) release() {
	if s != nil {
		s.free.Release(1)
	}
}

// awaitSlot waits until a call in flight has ended. Nobody knows when that will be; what is
// reported is a second.
func (c *call) awaitSlot(s *slots) error {
	now := c.t.now()
	if c.t.maxWait == 0 {
		return c.failure(SlotsTaken, now+second, now, errLonger)
	}
	c.notify(verdict{why: SlotsTaken, until: now + second}, now)
	early, cancel := c.beforeDeadline()
	defer cancel()
	bounded, stop := context.WithDeadline(early, c.giveUp)
	defer stop()
	if s.free.Acquire(bounded, 1) == nil {
		return nil
	}
	now = c.t.now()
	if early.Err() == nil {
		return c.failure(SlotsTaken, now+second, now, errLonger)
	}
	return c.gone(SlotsTaken, now+second)
}

// refusedBy reports whether a 429 is that of the limit in flight, whose fields describe no window.
func (s *slots) refusedBy(p pass, a answer) bool {
	f := a.fields
	if s == nil || a.kind != binding || f.Limit != s.limit || f.RetryAfter != 1 || f.Date > 0 && f.Reset-f.Date > 1 {
		return false
	}
	for _, w := range p.way.windows {
		if w.declared.limit == s.limit {
			return false
		}
	}
	return true
}
