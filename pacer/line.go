package pacer

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A line is the queue of calls of one limiter, host and credential, in order of arrival. Only the
// first call asks the windows whether it may start; it is woken when an answer changes them.
type line struct {
	host    string
	limiter string
	cost    int64
	ways    []way        // one, or one for each local address that a limiter counts separately
	slots   *slots       // nil: any number of calls may be in flight
	family  *family      // nil: a route covers the line
	users   atomic.Int64 // calls that hold the line; it may be dropped only at 0

	mu      sync.Mutex
	headed  bool // whether a call is first
	queue   []*waiter
	tickets uint64
	why     Reason        // of the first
	until   int64         // local time until which the first waits
	poked   chan struct{} // wakes the first; holds one
}

// A way is an egress of a line, and the windows that requests are charged to there.
type way struct {
	base    http.RoundTripper
	windows []*window
}

// windows yields the windows of all ways, in order.
func (l *line) windows() iter.Seq[*window] {
	return func(yield func(*window) bool) {
		for _, w := range l.ways {
			for _, window := range w.windows {
				if !yield(window) {
					return
				}
			}
		}
	}
}

// A waiter is a call in the queue.
type waiter struct {
	ticket uint64
	first  chan struct{} // closed when the call becomes the first
	moved  chan struct{} // holds one: the wait may have become longer
}

// A pass is what a call holds that may start.
type pass struct {
	way    *way
	starts [maxWindows]started
}

// maxWindows is the maximum number of windows of a limiter.
const maxWindows = 4

// A call is one request, over all its attempts.
type call struct {
	ctx      context.Context
	t        *Transport
	request  *http.Request
	line     *line
	ticket   uint64    // 0: it has not waited yet
	notified Reason    // the reason that OnWait last got; empty: none
	giveUp   time.Time // when the call gives up waiting
	certain  bool      // it starts on no guess any more, because it was refused often
	held     *slots    // of which the call holds one; nil: none, as while it waits for its budget
}

// enter waits until the call may start. An error is a *WaitError or the context's.
func (l *line) enter(c *call) (pass, error) {
	now := c.t.now()
	l.mu.Lock()
	if !l.headed && len(l.queue) == 0 { // no call waits: the lock is held for one check
		p, v := l.try(c, now)
		if v.start {
			l.mu.Unlock()
			return p, nil
		}
		if err := c.checkWait(v, now, 0); err != nil {
			l.mu.Unlock()
			return pass{}, err
		}
		l.headed, l.why, l.until = true, v.why, v.until
		if c.ticket == 0 {
			c.ticket = l.ticket()
		}
		l.mu.Unlock()
		return l.waitFirst(c)
	}
	w, err := l.enqueue(c, now)
	why := verdict{why: l.why, until: l.until}
	l.mu.Unlock()
	if err != nil {
		return pass{}, err
	}
	return l.waitQueued(c, w, why)
}

// waitQueued is the wait of the calls behind the first.
func (l *line) waitQueued(c *call, w *waiter, why verdict) (pass, error) {
	c.release()
	leading := false
	defer func() {
		if !leading {
			l.remove(w)
		}
	}()
	now := c.t.now()
	if why.until = max(why.until, l.when(c.t, now, 1)); why.why != "" && why.until > now {
		c.notify(why, now)
	}
	longer := time.NewTimer(time.Until(c.giveUp))
	defer longer.Stop()
	early, cancel := c.beforeDeadline()
	defer cancel()
	for {
		if c.moved() {
			return pass{}, errMoved
		}
		select {
		case <-w.first:
			leading = true
			return l.waitFirst(c)
		case <-w.moved:
			if err := l.recheck(c, w); err != nil {
				return pass{}, err
			}
		case <-longer.C:
			now := c.t.now()
			return pass{}, c.failure(BudgetSpent, l.when(c.t, now, 1), now, errLonger)
		case <-early.Done():
			return pass{}, c.gone(BudgetSpent, l.when(c.t, c.t.now(), 1))
		}
	}
}

func (l *line) ticket() uint64 {
	l.tickets++
	return l.tickets + refusedFirst
}

// refusedFirst is the ticket of a call that was refused before it ever waited: it precedes all that
// wait.
const refusedFirst = 1

// enqueue inserts a call behind all that came before it, unless its wait would be too long. l.mu is
// held.
func (l *line) enqueue(c *call, now int64) (*waiter, error) {
	if c.ticket == 0 {
		c.ticket = l.ticket()
	}
	at, _ := slices.BinarySearchFunc(l.queue, c.ticket, func(w *waiter, ticket uint64) int {
		if w.ticket <= ticket {
			return -1
		}
		return 1
	})
	if err := c.checkWait(verdict{why: BudgetSpent}, now, at+1); err != nil {
		return nil, err
	}
	w := &waiter{ticket: c.ticket, first: make(chan struct{}), moved: make(chan struct{}, 1)}
	l.queue = slices.Insert(l.queue, at, w)
	return w, nil
}

// recheck checks again whether a wait that has become longer is acceptable.
func (l *line) recheck(c *call, w *waiter) error {
	now := c.t.now()
	l.mu.Lock()
	at := slices.Index(l.queue, w)
	l.mu.Unlock()
	if at < 0 {
		return nil // it has become the first
	}
	return c.checkWait(verdict{why: BudgetSpent}, now, at+1)
}

// remove removes a waiter. If it has become the first, the next one takes its place.
func (l *line) remove(w *waiter) {
	l.mu.Lock()
	at := slices.Index(l.queue, w)
	if at >= 0 {
		l.queue = slices.Delete(l.queue, at, at+1)
	}
	l.mu.Unlock()
	if at < 0 {
		l.next()
	}
}

// next makes the next of the queue the first.
func (l *line) next() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		l.headed = false
		return
	}
	close(l.queue[0].first)
	l.queue = slices.Delete(l.queue, 0, 1)
}

// wakeFirst wakes the first of the line.
func (l *line) wakeFirst() {
	select {
	case l.poked <- struct{}{}:
	default:
	}
}

// reconsider makes all waiting calls check again whether their wait is acceptable.
func (l *line) reconsider() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.queue {
		select {
		case w.moved <- struct{}{}:
		default:
		}
	}
}

// waitFirst is the wait of the first.
func (l *line) waitFirst(c *call) (pass, error) {
	c.release()
	defer l.next()
	for w := range l.windows() {
		w.wait(l)
		defer w.done(l)
	}
	if c.t.ledger.shared != nil {
		defer func() { l.setWaiting(l.length() - 1) }() // before the next becomes the first
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	early, cancel := c.beforeDeadline()
	defer cancel()
	jitter, over, pause := c.jitter(), int64(0), poll
	for {
		if c.moved() {
			return pass{}, errMoved
		}
		now := c.t.now()
		var sleep int64
		// one delay for each Reset: calls behind this one start with it
		if over != 0 && over <= now && now < over+jitter && c.has(over+jitter-now) {
			sleep = over + jitter - now
		} else {
			if c.t.ledger.shared != nil {
				l.setWaiting(l.length())
			}
			p, v := l.try(c, now)
			if v.start {
				return p, nil
			}
			if err := c.checkWait(v, now, 0); err != nil {
				return pass{}, err
			}
			l.setReason(v)
			c.t.reportFailure()
			c.notify(v, now)
			if sleep = min(v.until-now, int64(time.Until(c.giveUp))); v.why == BudgetSpent {
				if v.until > over+second {
					l.reconsider() // the calls behind have to know
				}
				over = v.until
			}
			if c.t.ledger.shared != nil { // other processes change it without a wake-up
				sleep = min(sleep, int64(pause))
				pause = min(2*pause, 20*poll)
			}
		}
		timer.Reset(time.Duration(max(sleep, 0)))
		select {
		case <-timer.C:
		case <-l.poked:
		case <-early.Done():
			return pass{}, c.gone(BudgetSpent, l.when(c.t, c.t.now(), 1))
		}
	}
}

// setReason records why the first waits, for the calls behind it.
func (l *line) setReason(v verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why, l.until = v.why, v.until
}

// setWaiting publishes the number of waiting calls to the processes that share the view.
func (l *line) setWaiting(calls int) {
	for w := range l.windows() {
		w.setWaiting(calls)
	}
}

// try starts the call if one of its ways allows it. It tries the way with the most budget first.
func (l *line) try(c *call, now int64) (pass, verdict) {
	if len(l.ways) == 1 {
		return l.tryWay(c, &l.ways[0])
	}
	soonest := verdict{until: now + longestWindow*second}
	for _, w := range l.byBudget(c.t, now) {
		p, v := l.tryWay(c, w)
		if v.start {
			return p, v
		}
		if v.until < soonest.until {
			soonest = v
		}
	}
	return pass{}, soonest
}

// tryWay counts the call in all windows of a way, or in none.
func (l *line) tryWay(c *call, w *way) (pass, verdict) {
	t := c.t
	if len(w.windows) > 1 { // checked first, so that a count is rarely taken back
		for _, window := range w.windows {
			if v := window.canStart(&t.ledger, c.ask(window)); !v.start {
				return pass{}, v
			}
		}
	}
	p := pass{way: w}
	for i, window := range w.windows {
		v, as := window.start(&t.ledger, c.ask(window))
		if !v.start {
			for j := range i {
				w.windows[j].finish(&t.ledger, p.of(l, j), answer{kind: unsent})
				w.windows[j].wake(l)
			}
			return pass{}, v
		}
		p.starts[i] = as
	}
	return p, verdict{start: true}
}

// of returns what the i-th window needs to know of a call that has returned.
func (p pass) of(l *line, i int) sent {
	w, as := p.way.windows[i], p.starts[i]
	return sent{cost: w.cost(l.cost), place: as.place, at: as.at, length: w.declared.length, tick: as.tick}
}

// ask returns what a call of a limiter with this cost asks of a window.
func (t *Transport) ask(cost int64, w *window) ask {
	return ask{cost: w.cost(cost), threshold: t.options.Threshold, process: t.ledger.process, declared: w.declared}
}

// ask returns what the call asks of a window.
func (c *call) ask(w *window) ask {
	a := c.t.ask(c.line.cost, w)
	a.certain = c.certain
	return a
}

// finish handles the answer to a call that started. It returns what window.finish does.
func (l *line) finish(t *Transport, p pass, a answer) (until int64) {
	bound := p.way.bound(a, t.now())
	for i, w := range p.way.windows {
		one := a
		if a.kind == binding && i != bound {
			one.kind = nonbound
		}
		until = max(until, w.finish(&t.ledger, p.of(l, i), one))
		w.wake(nil)
	}
	if a.refused {
		l.reconsider()
	}
	return until
}

// bound returns the index of the window that the fields describe: one with their limit, else the
// shortest that is long enough for their Reset.
func (w *way) bound(a answer, now int64) int {
	if len(w.windows) < 2 || a.kind != binding {
		return 0
	}
	ahead := (a.fields.after + second - 1) / second
	switch {
	case a.fields.after > 0:
	case a.fields.Date > 0:
		ahead = a.fields.Reset - a.fields.Date
	default:
		ahead = a.fields.Reset - now/second
	}
	best, bestScore := 0, -3
	for i, window := range w.windows {
		length, score := window.declared.length, 0
		fits := ahead <= length
		if fits {
			score++
		}
		switch was := window.snapshot().limit; {
		case was == a.fields.Limit, window.declared.limit == a.fields.Limit:
			score += 2
		case was != 0:
			score -= 2 // it has stated another limit
		}
		// the shortest that fits, or the longest
		nearer := fits == (length < w.windows[best].declared.length)
		if score > bestScore || score == bestScore && nearer {
			best, bestScore = i, score
		}
	}
	return best
}

// checkWait returns an error for a call that should not wait behind so many others. v is why it
// cannot start now. A deadline counts as too soon only if that is certain.
func (c *call) checkWait(v verdict, now int64, ahead int) error {
	n := int64(ahead) + 1
	views := c.line.views(c.t)
	expected := max(v.until, views.when(now, n))
	if c.t.maxWait == 0 {
		return c.failure(v.why, expected, now, errLonger)
	}
	sure := views.optimistic().when(now, n)
	if deadline, ok := c.ctx.Deadline(); ok && sure > now && time.Duration(sure-now) > time.Until(deadline) {
		return c.failure(v.why, expected, now, context.DeadlineExceeded)
	}
	if left := time.Until(c.giveUp); left <= 0 || time.Duration(sure-now) > left {
		return c.failure(v.why, expected, now, errLonger)
	}
	return nil
}

func (c *call) failure(why Reason, until, now int64, bound error) *WaitError {
	wait := time.Duration(max(until-now, 1))
	deadline, _ := c.ctx.Deadline()
	return &WaitError{Host: c.line.host, Limiter: c.line.limiter, Reason: why, Wait: wait, Until: c.t.clock().Add(wait), Deadline: deadline, bound: bound}
}

// beforeDeadline returns a context that ends shortly before the call's deadline: after the deadline
// http.Client.Timeout would replace the call's error by its own, which is no *WaitError.
func (c *call) beforeDeadline() (context.Context, context.CancelFunc) {
	deadline, ok := c.ctx.Deadline()
	if !ok {
		return c.ctx, func() {}
	}
	margin := min(50*time.Millisecond, time.Until(deadline)/10)
	return context.WithDeadline(c.ctx, deadline.Add(-margin))
}

// gone returns the error of a call whose context has ended, or is about to end, while it waited
// until a local time.
func (c *call) gone(why Reason, until int64) error {
	if err := c.ctx.Err(); err != nil && err != context.DeadlineExceeded {
		return err
	}
	return c.failure(why, until, c.t.now(), context.DeadlineExceeded)
}

// notify calls OnWait, once for each reason: a call may first wait for another call's answer and
// then for the window.
func (c *call) notify(v verdict, now int64) {
	if c.notified == v.why || c.t.options.OnWait == nil {
		return
	}
	c.notified = v.why
	wait := time.Duration(v.until - now)
	c.t.options.OnWait(Wait{Host: c.line.host, Limiter: c.line.limiter, Reason: v.why, For: wait, Until: c.t.clock().Add(wait)})
}

// jitter returns a random delay in nanoseconds.
func (c *call) jitter() int64 {
	if c.t.options.Jitter <= 0 {
		return 0
	}
	return rand.Int64N(int64(c.t.options.Jitter) + 1)
}

// has reports whether a call can wait this many nanoseconds.
func (c *call) has(wait int64) bool {
	deadline, ok := c.ctx.Deadline()
	return time.Duration(wait) < time.Until(c.giveUp) && (!ok || time.Duration(wait) < time.Until(deadline))
}

var (
	// errLonger means that MaxWait is too short.
	errLonger = errors.New("longer than Options.MaxWait allows")
	// errMoved means that the call's path has got a line of its own.
	errMoved = errors.New("the path has a line of its own")
)
