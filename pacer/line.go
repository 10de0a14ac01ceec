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

// A line is where calls of one limiter, host and credential wait, in the order they came. The first of them alone asks its
// windows whether it may start; it is woken when an answer changes them.
type line struct {
	host    string
	limiter string
	cost    int64
	ways    []way        // one, or one for each local address that a limiter counts apart
	family  *family      // nil: the routes say what the line is for
	users   atomic.Int64 // calls that hold the line; only without any it may be forgotten

	mu      sync.Mutex
	headed  bool // somebody is first
	queue   []*waiter
	tickets uint64
	why     Reason        // of the first
	until   int64         // local time, likewise
	poked   chan struct{} // wakes the first; holds one
}

// A way is where a request may leave, and what it is charged to there.
type way struct {
	base    http.RoundTripper
	windows []*window
}

// windows are those of all ways, in their order.
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

// A waiter is a call in a queue.
type waiter struct {
	ticket uint64
	first  chan struct{} // closed when it is the first
	moved  chan struct{} // holds one: it may have to wait longer than it thought
}

// A pass is what a call holds that may start.
type pass struct {
	way    *way
	starts [maxWindows]started
}

// maxWindows is the most windows of a limiter.
const maxWindows = 4

// A call is one request on its way, however often it is sent.
type call struct {
	ctx     context.Context
	t       *Transport
	request *http.Request
	line    *line
	ticket  uint64    // 0: it has not waited yet
	told    Reason    // of the wait that OnWait knows of; empty: of none
	most    time.Time // after which it is not to wait
}

// enter waits until the call may start. An error is a *WaitError or the context's.
func (l *line) enter(c *call) (pass, error) {
	now := c.t.now()
	l.mu.Lock()
	if !l.headed && len(l.queue) == 0 { // nobody waits: the lock is held for one look
		p, v := l.try(c.t, now)
		if v.start {
			l.mu.Unlock()
			return p, nil
		}
		if err := c.worth(v, now, 0); err != nil {
			l.mu.Unlock()
			return pass{}, err
		}
		l.headed, l.why, l.until = true, v.why, v.until
		if c.ticket == 0 {
			c.ticket = l.ticket()
		}
		l.mu.Unlock()
		return l.lead(c)
	}
	w, err := l.enqueue(c, now)
	why := verdict{why: l.why, until: l.until}
	l.mu.Unlock()
	if err != nil {
		return pass{}, err
	}
	return l.queued(c, w, why)
}

// queued is the wait of those behind the first.
func (l *line) queued(c *call, w *waiter, why verdict) (pass, error) {
	leading := false
	defer func() {
		if !leading {
			l.leave(w)
		}
	}()
	now := c.t.now()
	if why.until = max(why.until, l.when(c.t, now, 1)); why.why != "" && why.until > now {
		c.say(why, now)
	}
	longer := time.NewTimer(time.Until(c.most))
	defer longer.Stop()
	early, cancel := c.beforeDeadline()
	defer cancel()
	for {
		if c.elsewhere() {
			return pass{}, errElsewhere
		}
		select {
		case <-w.first:
			leading = true
			return l.lead(c)
		case <-w.moved:
			if err := l.still(c, w); err != nil {
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

// refusedFirst is the ticket of a call that did not wait before it was refused: it came before all who wait.
const refusedFirst = 1

// enqueue adds a call behind all that came before it, where its wait is worth beginning. l.mu is held.
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
	if err := c.worth(verdict{why: BudgetSpent}, now, at+1); err != nil {
		return nil, err
	}
	w := &waiter{ticket: c.ticket, first: make(chan struct{}), moved: make(chan struct{}, 1)}
	l.queue = slices.Insert(l.queue, at, w)
	return w, nil
}

// still looks again whether a wait that has become longer is worth it.
func (l *line) still(c *call, w *waiter) error {
	now := c.t.now()
	l.mu.Lock()
	at := slices.Index(l.queue, w)
	l.mu.Unlock()
	if at < 0 {
		return nil // it is the first by now
	}
	return c.worth(verdict{why: BudgetSpent}, now, at+1)
}

// leave takes a waiter out; the first hands on.
func (l *line) leave(w *waiter) {
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

// poke wakes the first of the line.
func (l *line) poke() {
	select {
	case l.poked <- struct{}{}:
	default:
	}
}

// reconsider lets all who wait look whether their wait is still worth it.
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

// lead is the wait of the first.
func (l *line) lead(c *call) (pass, error) {
	defer l.next()
	for w := range l.windows() {
		w.wait(l)
		defer w.done(l)
	}
	if c.t.ledger.shared != nil {
		defer func() { l.wants(l.length() - 1) }() // before the next is first
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	early, cancel := c.beforeDeadline()
	defer cancel()
	jitter, over, pause := c.jitter(), int64(0), poll
	for {
		if c.elsewhere() {
			return pass{}, errElsewhere
		}
		now := c.t.now()
		var sleep int64
		if over != 0 && over <= now && now < over+jitter && c.has(over+jitter-now) { // one delay for each Reset: who waits behind this call goes with it
			sleep = over + jitter - now
		} else {
			if c.t.ledger.shared != nil {
				l.wants(l.length())
			}
			p, v := l.try(c.t, now)
			if v.start {
				return p, nil
			}
			if err := c.worth(v, now, 0); err != nil {
				return pass{}, err
			}
			l.because(v)
			c.t.tell()
			c.say(v, now)
			if sleep = min(v.until-now, int64(time.Until(c.most))); v.why == BudgetSpent {
				if v.until > over+second {
					l.reconsider() // for those behind this is news
				}
				over = v.until
			}
			if c.t.ledger.shared != nil { // others change it without telling
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

// because remembers why the first waits, for those who come behind it.
func (l *line) because(v verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why, l.until = v.why, v.until
}

// wants says how many calls wait, to those who share the view.
func (l *line) wants(calls int) {
	for w := range l.windows() {
		w.wants(calls)
	}
}

// try starts the call where one of its ways allows it, the one with the most budget first.
func (l *line) try(t *Transport, now int64) (pass, verdict) {
	if len(l.ways) == 1 {
		return l.tryWay(t, &l.ways[0])
	}
	least := verdict{until: now + longest*second}
	for _, w := range l.byBudget(t, now) {
		p, v := l.tryWay(t, w)
		if v.start {
			return p, v
		}
		if v.until < least.until {
			least = v
		}
	}
	return pass{}, least
}

// tryWay counts the call in all windows of a way, or in none.
func (l *line) tryWay(t *Transport, w *way) (pass, verdict) {
	if len(w.windows) > 1 { // so that hardly anything is counted and taken back
		for _, window := range w.windows {
			if v := window.may(&t.ledger, t.ask(l.cost, window)); !v.start {
				return pass{}, v
			}
		}
	}
	p := pass{way: w}
	for i, window := range w.windows {
		v, as := window.start(&t.ledger, t.ask(l.cost, window))
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

// of returns what the i-th window needs to know of the call that has come back.
func (p pass) of(l *line, i int) sent {
	return sent{cost: l.cost, place: p.starts[i].place, at: p.starts[i].at, length: p.way.windows[i].declared.length}
}

// ask is what a call of so many units asks of a window.
func (t *Transport) ask(cost int64, w *window) ask {
	return ask{cost, t.options.Threshold, t.ledger.process, w.declared}
}

// finish takes in what came back for a call that started. It returns what
// window.finish does.
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

// bound returns which window the fields are of: one with their limit, else one that is long enough for their Reset, the shortest.
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
		switch was := window.look().limit; {
		case was == a.fields.Limit, window.declared.limit == a.fields.Limit:
			score += 2
		case was != 0:
			score -= 2 // it has told another
		}
		nearer := fits == (length < w.windows[best].declared.length) // the shortest that fits, or the longest
		if score > bestScore || score == bestScore && nearer {
			best, bestScore = i, score
		}
	}
	return best
}

// worth returns the error of a call that is not to wait with so many others ahead of it, nil where it is. v says why it cannot start now.
// The deadline is too soon only where that is certain.
func (c *call) worth(v verdict, now int64, ahead int) error {
	n := int64(ahead) + 1
	views := c.line.views(c.t)
	expected := max(v.until, views.when(now, n))
	if c.t.maxWait == 0 {
		return c.failure(v.why, expected, now, errLonger)
	}
	sure := views.certain().when(now, n)
	if deadline, ok := c.ctx.Deadline(); ok && sure > now && time.Duration(sure-now) > time.Until(deadline) {
		return c.failure(v.why, expected, now, context.DeadlineExceeded)
	}
	if left := time.Until(c.most); left <= 0 || time.Duration(sure-now) > left {
		return c.failure(v.why, expected, now, errLonger)
	}
	return nil
}

func (c *call) failure(why Reason, until, now int64, bound error) *WaitError {
	wait := time.Duration(max(until-now, 1))
	deadline, _ := c.ctx.Deadline()
	return &WaitError{Host: c.line.host, Limiter: c.line.limiter, Reason: why, Wait: wait, Until: c.t.clock().Add(wait), Deadline: deadline, bound: bound}
}

// beforeDeadline returns a context that ends shortly before the call's deadline: once that has
// passed, http.Client.Timeout replaces the error of the call by one of its own, which is no
// *WaitError.
func (c *call) beforeDeadline() (context.Context, context.CancelFunc) {
	deadline, ok := c.ctx.Deadline()
	if !ok {
		return c.ctx, func() {}
	}
	margin := min(50*time.Millisecond, time.Until(deadline)/10)
	return context.WithDeadline(c.ctx, deadline.Add(-margin))
}

// gone is the error of a call whose context ended, or is about to, while it waited until a local
// time.
func (c *call) gone(why Reason, until int64) error {
	if err := c.ctx.Err(); err != nil && err != context.DeadlineExceeded {
		return err
	}
	return c.failure(why, until, c.t.now(), context.DeadlineExceeded)
}

// say tells OnWait of a wait, once for each reason: who waited for another call's answer may then wait for the window.
func (c *call) say(v verdict, now int64) {
	if c.told == v.why || c.t.options.OnWait == nil {
		return
	}
	c.told = v.why
	wait := time.Duration(v.until - now)
	c.t.options.OnWait(Wait{Host: c.line.host, Limiter: c.line.limiter, Reason: v.why, For: wait, Until: c.t.clock().Add(wait)})
}

// jitter is a random delay, in nanoseconds.
func (c *call) jitter() int64 {
	if c.t.options.Jitter <= 0 {
		return 0
	}
	return rand.Int64N(int64(c.t.options.Jitter) + 1)
}

// has says whether a call has so much time to wait, in nanoseconds.
func (c *call) has(wait int64) bool {
	deadline, ok := c.ctx.Deadline()
	return time.Duration(wait) < time.Until(c.most) && (!ok || time.Duration(wait) < time.Until(deadline))
}

var (
	// errLonger is the bound that MaxWait sets.
	errLonger = errors.New("longer than Options.MaxWait allows")
	// errElsewhere says that a call's path has got a line of its own.
	errElsewhere = errors.New("the path has a line of its own")
)
