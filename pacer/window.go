package pacer

import (
	"net/netip"
	"sync"
	"time"
)

// A window is one window of one caller in this process: a budget, and the lines that wait for it.
type window struct {
	key      string // identifies it among the windows of this process, including credentials
	host     string
	limiter  string
	shown    string // what it is counted by, in a form for people
	egress   netip.Addr
	declared declared

	mu      sync.Mutex
	view    budget // with a shared view, as last read
	flying  int64  // units in flight of this process
	wanting int64  // waiting calls of this process, if the view is shared
	waiting map[*line]struct{}
	settling
}

// declared is the limit and length that the routes give a window; zero if no route covers the
// request.
type declared struct {
	limit    int64
	length   int64 // seconds
	requests bool  // each call costs 1, whatever its limiter's cost is
}

// A ledger holds the views of windows.
type ledger struct {
	shared  Shared // nil: only this process
	process uint64
	// local time; it is read while a view is locked, so that times in a view never go back
	now func() int64

	mu     sync.Mutex
	away   int64 // local time before which shared is not used again
	failed error // not reported yet
}

// A Shared is a view that several processes share, with one state for each budget. It must be safe
// for concurrent use.
type Shared interface {
	// Update replaces the state under key by the one that change returns, atomically. A missing
	// state is nil. Update does not keep the slice that change returns, and may call change again
	// after a conflict. It should fail rather than wait long, because calls wait for it. Keys have
	// 32 bytes. States have some hundred bytes, and may be dropped an hour after their last change.
	Update(key string, change func(state []byte) (next []byte)) error
}

// update changes a window's budget, in the shared state if there is one. change may be called more
// than once.
func (g *ledger) update(w *window, change func(b *budget, now int64)) {
	if g.shared != nil && g.up() {
		var next budget
		err := g.shared.Update(w.key, func(state []byte) []byte {
			b, ok := decode(state)
			now := g.now()
			if !ok || !b.plausible(now) {
				b = budget{}
				if w.declared == (declared{}) {
					b.phase = silent
				}
			}
			b.setFlight(g.process, w.flying, w.wanting, now)
			change(&b, now)
			next = b
			return encode(&b)
		})
		if err == nil {
			w.view = next
			return
		}
		g.fail(err)
	}
	now := g.now()
	w.view.setFlight(g.process, w.flying, 0, now)
	change(&w.view, now)
}

// up reports whether the shared view may be used.
func (g *ledger) up() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isUp(g.now())
}

// isUp is up while g.mu is held. If the view is away for longer than it can be, the local clock was
// set back.
func (g *ledger) isUp(now int64) bool { return now >= g.away || g.away-now > second }

// fail disables the shared view for a second.
func (g *ledger) fail(err error) {
	g.mu.Lock()
	now := g.now()
	if g.isUp(now) {
		g.failed = err
	}
	g.away = now + second
	g.mu.Unlock()
}

// failure returns an error of the shared view once.
func (g *ledger) failure() error {
	if g.shared == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.failed
	g.failed = nil
	return err
}

// A started call has its position in the order of a window, and the local time of its start.
type started struct {
	place uint64
	at    int64
	tick  uint64
}

// canStart decides whether a call may start, without counting it.
func (w *window) canStart(g *ledger, a ask) (v verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expect(&a, g.now())
	if g.shared == nil {
		return w.view.canStart(a, g.now())
	}
	g.update(w, func(b *budget, now int64) { v = b.canStart(a, now) })
	return v
}

// start decides whether a call may start, and if so counts it in flight.
func (w *window) start(g *ledger, a ask) (v verdict, as started) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := g.now()
	w.expect(&a, now)
	if g.shared != nil {
		return w.startShared(g, a)
	}
	if v = w.view.canStart(a, now); v.start {
		w.flying += a.cost
		w.view.setFlight(g.process, w.flying, 0, now)
		as = started{w.view.begin(a, now), now, w.settling.start()}
	}
	return v, as
}

// expect adds to an ask the units that have come back since the newest response.
func (w *window) expect(a *ask, now int64) {
	const long = 60 * second
	if len(w.ended) > 0 && !a.certain {
		a.back = w.back(w.view.remaining, w.flying == 0 && w.open == 0, w.view.restored(now)-now > long)
	}
}

// startShared is start in a shared view. It is a separate function because its closure allocates.
func (w *window) startShared(g *ledger, a ask) (v verdict, as started) {
	before := w.flying
	g.update(w, func(b *budget, now int64) {
		w.flying = before
		if v = b.canStart(a, now); v.start {
			w.flying = before + a.cost
			b.setFlight(g.process, w.flying, w.wanting, now)
			as = started{b.begin(a, now), now, w.settling.start()}
		}
	})
	return v, as
}

// An answer is the result of a request.
type answer struct {
	fields  report
	kind    answerKind
	refused bool
	wait    int64 // nanoseconds that a 429 asks to wait; 0: it states none
}

type answerKind uint8

const (
	unsent   answerKind = iota // it never reached the server
	lost                       // no answer; it may have been charged
	noFields                   // an answer without fields, or with impossible ones
	binding                    // fields, of this window
	nonbound                   // fields, of another window of the same limiter
)

// admitted reports whether the call was served, as far as a caller can see.
func (a answer) admitted() bool { return a.kind > lost && !a.refused }

// finish handles an answer. It returns the local time at which the reported budget is restored, or
// at which a request can start that another limit has refused; 0 if the fields are not credible.
func (w *window) finish(g *ledger, s sent, a answer) (until int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flying -= s.cost
	if w.later && a.admitted() { // at once: between the two the call would seem to have ended
		w.open += s.cost
	}
	if w.later && a.kind == binding {
		was := w.view
		defer func() { w.observe(s, &was, &w.view, a.fields.Remaining, w.flying, a.refused) }()
	}
	if g.shared != nil {
		return w.finishShared(g, s, a)
	}
	s.now = g.now()
	w.view.setFlight(g.process, w.flying, 0, s.now)
	return w.view.learn(s, a)
}

func (w *window) finishShared(g *ledger, s sent, a answer) (until int64) {
	g.update(w, func(b *budget, now int64) {
		s.now = now
		until = b.learn(s, a)
	})
	return until
}

// learnElsewhere handles an answer to a request that started in another window. It returns what
// finish does.
func (w *window) learnElsewhere(g *ledger, s sent, a answer) (until int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g.update(w, func(b *budget, now int64) {
		b.started++
		s.place, s.now = b.started, now
		until = b.learn(s, a)
	})
	return until
}

// learn handles the answer to one request. It returns what finish does.
func (b *budget) learn(s sent, a answer) (until int64) {
	switch a.kind {
	case unsent:
		b.notSent(s)
	case lost:
		b.noAnswer(s)
	case noFields:
		b.noFields(s)
	case nonbound:
		b.otherBound(s, a.fields, a.refused)
	case binding:
		if until = b.observe(s, a.fields, a.refused); until > 0 && a.refused && s.fitted(a.fields) {
			return b.blockedByAnother(s.now, a.wait, until)
		}
	}
	if a.refused && until == 0 && a.wait > 0 && a.kind != nonbound {
		b.block(s.now, a.wait)
	}
	return until
}

// snapshot returns a copy of the view; a shared view as last read. All units in flight are one
// flight in it.
func (w *window) snapshot() budget {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.copy()
}

// copy is snapshot while w.mu is held.
func (w *window) copy() budget {
	b := w.view
	b.flights = []flight{{units: b.inFlight()}}
	return b
}

// refresh reads a shared view.
func (w *window) refresh(g *ledger) {
	if g.shared == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	g.update(w, func(*budget, int64) {})
}

// setWaiting sets the number of waiting calls, which other processes see with the next update.
func (w *window) setWaiting(calls int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanting = int64(calls)
}

// wait registers a line that waits for the window; done removes it.
func (w *window) wait(l *line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = make(map[*line]struct{})
	}
	w.waiting[l] = struct{}{}
}

func (w *window) done(l *line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, l)
}

// wake wakes the lines that wait for the window, except the one that changed it.
func (w *window) wake(except *line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.waiting {
		if l != except {
			l.wakeFirst()
		}
	}
}

// idle reports whether the window can be dropped without a loss.
func (w *window) idle(now int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := &w.view
	return w.flying == 0 && len(w.waiting) == 0 && now >= b.blocked && (b.phase != known || now >= b.restored(now))
}

// poll is the initial pause between two reads of a shared view while others may change it.
const poll = 10 * time.Millisecond
