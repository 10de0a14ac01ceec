package pacer

import (
	"net/netip"
	"sync"
	"time"
)

// A window is one window of one caller, as this process holds it: a budget, and who waits for it.
type window struct {
	key      string // identifies it among the windows of this process, credentials and all
	host     string
	limiter  string
	shown    string // what it is counted by, as people may see it
	egress   netip.Addr
	declared declared

	mu      sync.Mutex
	view    budget // with a shared view, as it was when last read
	flying  int64  // units in flight of this process
	wanting int64  // calls of this process that wait, where the view is shared
	waiting map[*line]struct{}
}

// declared is what the routes say of a window; zero where no route covers the request.
type declared struct {
	limit  int64
	length int64 // seconds
}

// A ledger is where the views of windows are.
type ledger struct {
	shared  Shared // nil: in this process alone
	process uint64
	now     func() int64 // local time; it is read while a view is locked, so that views see it pass

	mu     sync.Mutex
	away   int64 // local time before which shared is not asked again
	failed error // not told yet
}

// A Shared is the view that several processes share, one state for each budget. It must be safe for concurrent use.
type Shared interface {
	// Update lets change turn the state under key into the next one, while nobody else changes that; a state that is not there
	// is nil. It does not keep the slice that change returns, and may call change again where somebody else came first. It
	// should fail rather than wait long: calls wait for it. Keys are 32 bytes; states are some hundred bytes and may be
	// dropped an hour after their last change.
	Update(key string, change func(state []byte) (next []byte)) error
}

// update changes a window's budget: where it is shared, in the state that all see. change may be called more than once.
func (g *ledger) update(w *window, change func(b *budget, now int64)) {
	if g.shared != nil && g.up() {
		var next budget
		err := g.shared.Update(w.key, func(state []byte) []byte {
			b, ok := decode(state)
			now := g.now()
			if !ok || !b.possible(now) {
				b = budget{}
			}
			if b.phase == unknown && b.limit == 0 && w.declared == (declared{}) {
				b.phase = silent
			}
			b.flying(g.process, w.flying, w.wanting, now)
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
	w.view.flying(g.process, w.flying, 0, now)
	change(&w.view, now)
}

// up says whether the shared view is to be asked.
func (g *ledger) up() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now() >= g.away
}

// fail leaves the shared view alone for a second.
func (g *ledger) fail(err error) {
	g.mu.Lock()
	now := g.now()
	if now >= g.away {
		g.failed = err
	}
	g.away = now + second
	g.mu.Unlock()
}

// failure returns what is to be told of the shared view, once.
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

// A started call has its place in the order of a window, and the local time at which it got that.
type started struct {
	place uint64
	at    int64
}

// may asks whether a call may start, without counting it.
func (w *window) may(g *ledger, a ask) (v verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.shared == nil {
		return w.view.may(a, g.now())
	}
	g.update(w, func(b *budget, now int64) { v = b.may(a, now) })
	return v
}

// start asks whether a call may start, and if so counts it in flight.
func (w *window) start(g *ledger, a ask) (v verdict, as started) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.shared != nil {
		return w.startShared(g, a)
	}
	now := g.now()
	if v = w.view.may(a, now); v.start {
		w.flying += a.cost
		w.view.flying(g.process, w.flying, 0, now)
		as = started{w.view.begin(a, now), now}
	}
	return v, as
}

// startShared is start in a view that is shared. It stands alone because its closure allocates.
func (w *window) startShared(g *ledger, a ask) (v verdict, as started) {
	before := w.flying
	g.update(w, func(b *budget, now int64) {
		w.flying = before
		if v = b.may(a, now); v.start {
			w.flying = before + a.cost
			b.flying(g.process, w.flying, w.wanting, now)
			as = started{b.begin(a, now), now}
		}
	})
	return v, as
}

// An answer is what came back for a request.
type answer struct {
	fields  stated
	kind    answerKind
	refused bool
	wait    int64 // nanoseconds that a 429 asks to wait; 0: it does not say
}

type answerKind uint8

const (
	unsent   answerKind = iota // it never reached the server
	lost                       // no answer: perhaps charged
	unsaid                     // an answer without fields, or none that can be believed
	binding                    // fields, of this window
	nonbound                   // fields, of another window of the same limiter
)

// finish takes in what came back. It returns the local time at which the budget of the fields is
// restored, or the time at which a request can start that another limit has refused; 0 if the
// fields are not credible.
func (w *window) finish(g *ledger, s sent, a answer) (until int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flying -= s.cost
	if g.shared != nil {
		return w.finishShared(g, s, a)
	}
	s.now = g.now()
	w.view.flying(g.process, w.flying, 0, s.now)
	return w.view.learn(s, a)
}

func (w *window) finishShared(g *ledger, s sent, a answer) (until int64) {
	g.update(w, func(b *budget, now int64) {
		s.now = now
		until = b.learn(s, a)
	})
	return until
}

// hear takes in an answer to a request that was started in another window. It returns what finish
// does.
func (w *window) hear(g *ledger, s sent, a answer) (until int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g.update(w, func(b *budget, now int64) {
		b.started++
		s.place, s.now = b.started, now
		until = b.learn(s, a)
	})
	return until
}

// learn takes in what came back for one request. It returns what finish does.
func (b *budget) learn(s sent, a answer) (until int64) {
	switch a.kind {
	case unsent:
		b.unsent(s)
	case lost:
		b.miss(s)
	case unsaid:
		b.unsaid(s)
	case nonbound:
		b.unbound(s, a.fields, a.refused)
	case binding:
		if until = b.told(s, a.fields, a.refused); until > 0 && a.refused && s.fitted(a.fields) {
			return b.blockedByAnother(s.now, a.wait, until)
		}
	}
	if a.refused && until == 0 && a.wait > 0 && a.kind != nonbound {
		b.block(s.now, a.wait)
	}
	return until
}

// look returns a copy of the view; with a shared view, as it was when last read. What is in flight is one flight in it.
func (w *window) look() budget {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.view
	b.flights = []flight{{units: b.inFlight()}}
	return b
}

// refresh reads a view that is shared.
func (w *window) refresh(g *ledger) {
	if g.shared == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	g.update(w, func(*budget, int64) {})
}

// wants says how many calls of this process wait, for the others to see with the next update.
func (w *window) wants(calls int) {
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

// wake tells the lines that wait for the window that something has changed, except one that has changed it.
func (w *window) wake(except *line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.waiting {
		if l != except {
			l.poke()
		}
	}
}

// idle says whether nothing would be lost with the window.
func (w *window) idle(now int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := &w.view
	return w.flying == 0 && len(w.waiting) == 0 && now >= b.blocked && (b.phase != known || now >= b.restored(now))
}

// poll is how long to wait before a shared view is read again while others may change it.
const poll = 10 * time.Millisecond
