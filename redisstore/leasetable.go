package redisstore

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/lease"
	"github.com/weirlimit/weir/internal/wait"
)

// A leaseTable has the windows whose requests this process observes, to know which are worth
// leasing, and of these the ones that it has leased. It is bounded: a window that does not fit is
// not leased.
type leaseTable struct {
	apart [1 << 12]apart // shared by some windows each
	lines [leaseLines]leaseLine
	locks [64]sync.Mutex    // to change a line
	last  [1 << 17]lastTake // of windows for which there was no place
}

const (
	leaseLines = 1 << 13
	linePlaces = 8 // so there are 65,536
)

// A leaseLine has a place for each of some windows. Most are observed only, so what that needs has
// no pointers, for the garbage collector.
type leaseLine struct {
	lows    [linePlaces]atomic.Uint64 // lower halves of hashes
	leased  [linePlaces]atomic.Pointer[leased]
	watched atomic.Pointer[[linePlaces]watched]
	taken   atomic.Int32 // so many places are in use, the first ones
}

// A lastTake is a part of a window's hash, and the time of a take of it in milliseconds.
type lastTake struct{ atomic.Uint64 }

// note records a take at now, and returns how long ago the one before it was. It returns false if
// that was not of the same window.
func (s *lastTake) note(x hash, now time.Duration) (ago time.Duration, ok bool) {
	const time32 = uint64(1)<<32 - 1
	ms := uint64(now/time.Millisecond) & time32
	last := s.Swap(x.lo&^time32 | ms)
	return time.Duration((ms-last)&time32) * time.Millisecond, last&^time32 == x.lo&^time32
}

// A leased is a window of which units were wished for.
type leased struct {
	hash   hash
	watch  *watched
	pocket lease.Pocket
	// held to ask for units, to fill the pocket, and until units are back at the server
	turn
	gone    bool         // it is not in the table any more; guarded by turn
	waiting atomic.Int64 // takes that wait for the turn
	// a pocket with fewer units is to be filled again, see noteAsked; 0: only when it is empty
	low  atomic.Int64
	slow atomic.Bool // its units are about to go back, see giveBackSoon
	// returning: units are on their way back, so the pocket looks empty, and the server counts them
	returning atomic.Bool

	mu     sync.Mutex
	took   time.Duration // how long questions take with their turns, lately at most
	filled time.Duration // when the pocket was last filled

	place atomic.Pointer[leasedPlace] // nil before the first lot
	ahead serverAhead                 // of the window's machine, on a cluster
}

// A leasedPlace is where the server has a window.
type leasedPlace struct {
	name string
	slot int // on a cluster; otherwise -1
}

func (x hash) compare(y hash) int {
	if c := cmp.Compare(x.hi, y.hi); c != 0 {
		return c
	}
	return cmp.Compare(x.lo, y.lo)
}

func (a *leaseTable) line(x hash) *leaseLine { return &a.lines[x.hi%leaseLines] }

// find returns what is leased of a window, or nil.
func (a *leaseTable) find(x hash) *leased {
	line := a.line(x)
	for k := range line.lows {
		if line.lows[k].Load() != x.lo {
			continue
		}
		if e := line.leased[k].Load(); e != nil && e.hash == x {
			return e
		}
	}
	return nil
}

// watched returns what is observed of a window, or nil.
func (a *leaseTable) watched(x hash) *watched {
	w, _ := a.line(x).watchedAt(x)
	return w
}

func (l *leaseLine) watchedAt(x hash) (w *watched, k int) {
	for k := range l.taken.Load() {
		if l.lows[k].Load() == x.lo {
			return &l.watched.Load()[k], int(k)
		}
	}
	return nil, 0
}

// watch returns what is observed of a window, and begins to observe it if need be. It returns nil
// if there is no place: each is of a window that has units, that is asked for, or that had a take
// since the last one of this window. So keys that are always new take no place.
func (a *leaseTable) watch(x hash, now time.Duration) *watched {
	line, ago := a.line(x), time.Duration(0)
	if line.taken.Load() == linePlaces {
		var again bool
		if ago, again = a.last[x.hi/leaseLines%uint64(len(a.last))].note(x, now); !again {
			return nil
		}
	}
	lock := a.lockOf(x)
	lock.Lock()
	defer lock.Unlock()
	if w, _ := line.watchedAt(x); w != nil {
		return w
	}
	if k := line.taken.Load(); k < linePlaces {
		if k == 0 {
			line.watched.Store(new([linePlaces]watched))
		}
		w := line.put(int(k), x, now)
		line.taken.Store(k + 1)
		return w
	}
	for all := line.watched.Load(); ; {
		victim := -1
		for k := range all {
			if used := all[k].used.Load(); used < int64(now-ago) && !line.busy(k) && (victim < 0 || used < all[victim].used.Load()) {
				victim = k
			}
		}
		switch {
		case victim < 0:
			return nil
		case line.empty(victim):
			return line.put(victim, x, now)
		}
	}
}

func (a *leaseTable) lockOf(x hash) *sync.Mutex { return &a.locks[x.hi%uint64(len(a.locks))] }

// put has a place observe a window.
func (l *leaseLine) put(k int, x hash, now time.Duration) *watched {
	w := &l.watched.Load()[k]
	w.begin(x, now)
	l.lows[k].Store(x.lo)
	return w
}

func (l *leaseLine) busy(k int) bool {
	e := l.leased[k].Load()
	return e != nil && e.busy()
}

// empty drops what was leased of a window, and reports whether it could: it holds nothing, and is
// not asked for.
func (l *leaseLine) empty(k int) bool {
	e := l.leased[k].Load()
	if e == nil {
		return true
	}
	select {
	case e.turn <- struct{}{}:
	default:
		return false
	}
	defer e.release()
	if e.pocket.Units() > 0 {
		return false
	}
	e.gone = true
	l.leased[k].Store(nil)
	return true
}

// lease returns what is leased of a window, nothing at first. It returns nil if the window is not
// observed.
func (a *leaseTable) lease(x hash) *leased {
	lock := a.lockOf(x)
	lock.Lock()
	defer lock.Unlock()
	if e := a.find(x); e != nil {
		return e
	}
	line := a.line(x)
	w, k := line.watchedAt(x)
	if w == nil || line.leased[k].Load() != nil { // that of another with the same lower half
		return nil
	}
	e := &leased{hash: x, watch: w, turn: newTurn()}
	line.leased[k].Store(e)
	return e
}

// A turn is held by one at a time. Those that wait for it get it in their order.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) acquire(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	default:
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) release() { <-t }

// busy reports whether the window has units or is being asked for.
func (e *leased) busy() bool { return e.pocket.Units() > 0 || len(e.turn) > 0 }

// acquire takes the turns of the windows of a take, always in the same order, and waits for takes
// that are not in turn. Of the windows that are not observed, the take is one of those itself.
func (a *leases) acquire(ctx context.Context, t *leaseTake) (done func(), err error) {
	for done == nil {
		if err = a.acquireTurns(ctx, t); err == nil {
			done, err = a.keepApart(ctx, t)
		}
		if err != nil {
			return nil, err
		}
	}
	return done, nil
}

// keepApart waits for takes that are not in turn, with the turns of a take. If one of the windows
// that are not observed has become busy, it gives the turns back and returns nil: the caller is to
// take them anew.
func (a *leases) keepApart(ctx context.Context, t *leaseTake) (done func(), err error) {
	if err := a.awaitApart(ctx, t); err != nil {
		release(t)
		return nil, err
	}
	leave := a.table.enterApart(t, true)
	if !a.table.becameBusy(t) {
		return func() {
			if !t.kept {
				a.leaveTurns(t)
			}
		}, nil
	}
	leave()
	a.giveTurnsBack(t)
	return nil, nil
}

// giveTurnsBack releases the turns of a take, and looks which of its windows are leased by now.
func (a *leases) giveTurnsBack(t *leaseTake) {
	release(t)
	for i, e := range t.entries[:len(t.charges)] {
		if e == nil {
			t.entries[i] = a.table.find(t.hashes[i])
		}
	}
}

// acquireTurns takes the turns of the windows of a take.
func (a *leases) acquireTurns(ctx context.Context, t *leaseTake) error {
	var order [weir.MaxCharges]int
	n := 0
	for i, e := range t.entries[:len(t.charges)] {
		if e != nil {
			order[n], n = i, n+1
		}
	}
	slices.SortFunc(order[:n], func(i, j int) int { return t.hashes[i].compare(t.hashes[j]) })
	for k, i := range order[:n] {
		e := t.entries[i]
		e.waiting.Add(1)
		err := e.acquire(ctx)
		e.waiting.Add(-1)
		if err != nil {
			for _, j := range order[:k] {
				if t.entries[j] != nil {
					t.entries[j].release()
				}
			}
			return err
		}
		if e.gone { // its place in the table was needed: it holds nothing, and never will
			e.release()
			t.entries[i] = nil
		}
	}
	return nil
}

// awaitApart waits for what has begun without a turn, of the windows whose turns a take has.
func (a *leases) awaitApart(ctx context.Context, t *leaseTake) error {
	for i, e := range t.entries[:len(t.charges)] {
		if e == nil {
			continue
		}
		if err := a.table.apartAt(t.hashes[i]).await(ctx); err != nil {
			return err
		}
	}
	return nil
}

func release(t *leaseTake) {
	for _, e := range t.entries[:len(t.charges)] {
		if e != nil {
			e.release()
		}
	}
}

// An apart counts what is under way for some windows without a turn: takes, and settlements. It has
// two counters, so that it can wait for those that have begun before, and not for those that begin
// meanwhile.
type apart struct {
	now   atomic.Uint32 // which counter counts those that begin
	count [2]atomic.Int64
	turn  // held by the one that waits
}

func (a *leaseTable) init() {
	for i := range a.apart {
		a.apart[i].turn = newTurn()
	}
}

func (a *leaseTable) apartAt(x hash) *apart { return &a.apart[x.lo%uint64(len(a.apart))] }

// enterApart records that a take begins without a turn, before it looks at the turns of its
// windows. It ends with leave. If inTurn is true, the take has the turns of its entries, and begins
// without one for the others; then it must not wait for other takes until leave, since they may
// wait for it.
func (a *leaseTable) enterApart(t *leaseTake, inTurn bool) (leave func()) {
	for i := range t.charges {
		if t.in[i] = hasTurn; !inTurn || t.entries[i] == nil {
			t.in[i] = a.apartAt(t.hashes[i]).enter()
		}
	}
	return func() { a.leaveApart(t) }
}

// leaveApart ends what enterApart has begun.
func (a *leaseTable) leaveApart(t *leaseTake) {
	for i := range t.charges {
		if t.in[i] != hasTurn {
			a.apartAt(t.hashes[i]).count[t.in[i]].Add(-1)
		}
	}
}

// leaveTurns ends what keepApart has begun.
func (a *leases) leaveTurns(t *leaseTake) {
	a.table.leaveApart(t)
	release(t)
}

// hasTurn is in place of a counter of apart for a window of a take that has its turn.
const hasTurn = 2

// becameHeld finds what is leased of the windows of a take, and reports whether one of them has
// units or is being asked for.
func (a *leases) becameHeld(t *leaseTake) (held bool) {
	for i := range t.charges {
		e := a.table.find(t.hashes[i])
		t.entries[i] = e
		held = held || e != nil && e.busy()
	}
	return held
}

// becameBusy reports whether a window of a take that had no entry has one now that is busy.
func (a *leaseTable) becameBusy(t *leaseTake) bool {
	for i := range t.charges {
		if t.entries[i] == nil {
			if e := a.find(t.hashes[i]); e != nil && e.busy() {
				return true
			}
		}
	}
	return false
}

// underWay returns how much is.
func (a *apart) underWay() int64 { return a.count[0].Load() + a.count[1].Load() }

func (a *apart) enter() uint32 {
	for {
		now := a.now.Load()
		a.count[now].Add(1)
		if a.now.Load() == now {
			return now
		}
		a.count[now].Add(-1)
	}
}

// await waits for all that has begun before.
func (a *apart) await(ctx context.Context) error {
	if a.underWay() == 0 {
		return nil
	}
	if err := a.acquire(ctx); err != nil {
		return err
	}
	defer a.release()
	p := poll{ctx: ctx, since: time.Now()}
	now := a.now.Load()
	// the first counter may have some from before a wait that was given up
	for _, which := range [...]uint32{1 - now, now} {
		a.now.Store(1 - which)
		for a.count[which].Load() > 0 {
			if err := p.wait(); err != nil {
				return err
			}
		}
	}
	return nil
}

// A poll looks often at first, and then ever less: it waits an eighth longer at most than it must.
type poll struct {
	ctx   context.Context
	since time.Time
}

func (p *poll) wait() error { return wait.For(p.ctx, max(20*time.Microsecond, time.Since(p.since)/8)) }
