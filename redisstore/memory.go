package redisstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// A memory is what this process remembers of the server's answers: refusals, so that a spent window
// is refused without a round trip, and standings, so that an outage goes on from the last known
// counts. Both are bounded. A refusal that does not fit costs a round trip; a standing that does
// not fit begins at 0 in an outage.
type memory struct {
	local     func() int64 // this process's clock, Unix ns
	refusals  [refusalLines]refusalLine
	standings [standingLines]standingLine
	settled   [settledPlaces]settledPlace
}

const (
	refusalLines  = 1 << 13 // of 8 windows: 65,536
	standingLines = 1 << 16 // of 4 windows: 262,144; 9 MiB
	settledPlaces = 1 << 12
	askAgain      = time.Second
)

// A refusal is one window's standing in a refused take. It is immutable except for asked.
type refusal struct {
	id    id
	used  weir.Used
	now   int64        // the server's clock in that take, in ns
	since int64        // this process's clock when the take was sent
	until int64        // and when it was answered; the server read its clock in between
	asked atomic.Int64 // this process's clock when a take of this window was last sent
}

type refusalLine [8]atomic.Pointer[refusal]

func (m *memory) refused(i id) *refusal {
	line := &m.refusals[i%refusalLines]
	for k := range line {
		if e := line[k].Load(); e != nil && e.id == i {
			return e
		}
	}
	return nil
}

// keepRefusal stores e in place of the known refusal of its window, else in an empty place, else in
// place of the window that ends first.
func (m *memory) keepRefusal(e *refusal) {
	line := &m.refusals[e.id%refusalLines]
	var victim *atomic.Pointer[refusal]
	first := int64(1<<63 - 1)
	for k := range line {
		old := line[k].Load()
		if old != nil && old.id == e.id {
			line[k].Store(e)
			return
		}
		ends := int64(0)
		if old != nil {
			ends = old.used.Reset
		}
		if ends < first {
			first, victim = ends, &line[k]
		}
	}
	victim.Store(e)
}

func (m *memory) forgetRefusal(i id) {
	line := &m.refusals[i%refusalLines]
	for k := range line {
		if e := line[k].Load(); e != nil && e.id == i {
			line[k].CompareAndSwap(e, nil)
		}
	}
}

// A settledPlace is shared by some windows that this process settles, resets, or takes slots of.
type settledPlace struct {
	underWay atomic.Int64
	answered atomic.Int64 // this process's clock at the last answer
}

// beginSettling forgets the refusal of a window, in which budget is about to come back. Until
// endSettling none is remembered, and after it none that was asked for before.
func (m *memory) beginSettling(i id) {
	m.settled[i%settledPlaces].underWay.Add(1)
	m.forgetRefusal(i)
}

func (m *memory) endSettling(i id) {
	at := &m.settled[i%settledPlaces]
	at.answered.Store(m.local())
	m.forgetRefusal(i)
	at.underWay.Add(-1)
}

// dropSettled drops a refusal that was just kept, if budget may have come back since.
func (m *memory) dropSettled(e *refusal) {
	if m.isSettled(e) {
		m.forgetRefusal(e.id)
	}
}

// isSettling reports whether budget may be about to come back to a window.
func (m *memory) isSettling(i id) bool { return m.settled[i%settledPlaces].underWay.Load() > 0 }

// isSettled reports whether budget may have come back since a refusal.
func (m *memory) isSettled(e *refusal) bool {
	at := &m.settled[e.id%settledPlaces]
	last := at.answered.Load()
	return at.underWay.Load() > 0 || last != 0 && e.since <= last
}

// refuse answers a take that cannot succeed, at this process's time local, and reports whether it
// did. It answers only if the result is certain. The server is asked if its clock may have reached
// the reset, or if another window of the take might be the one that the caller has to wait for. It
// is also asked once a second, since budget can come back early.
//
// held returns the units that this process has leased of a window with a reset, by charge; nil:
// none.
func (m *memory) refuse(hashes []hash, charges []weir.Charge, held func(i int, reset int64) int64, local int64, r *weir.Receipt) bool {
	var known [weir.MaxCharges]*refusal
	var used [weir.MaxCharges]weir.Used // without what is held
	var best *refusal
	for i := range charges {
		e := m.refused(hashes[i].id())
		if known[i] = e; e == nil {
			continue
		}
		used[i] = e.used
		if held != nil {
			used[i].Count -= min(held(i, e.used.Reset), e.used.Count)
		}
		if e.used.Reset != 0 && !used[i].Fits(charges[i].Cost, charges[i].Limit) && (best == nil || e.used.Reset > best.used.Reset) {
			best = e
		}
	}
	if best == nil || m.isSettled(best) { // it is about to be dropped
		return false
	}
	asked := best.asked.Load()
	if local < max(best.until, asked) { // local was read before another take was sent or answered
		local = m.local()
	}
	earliest, latest, ok := best.span(local)
	if !ok {
		return false
	}
	if (local-asked >= int64(askAgain) || local < asked) && best.asked.CompareAndSwap(asked, local) {
		return false
	}
	return m.refuseFrom(best, &known, &used, charges, earliest, latest, r)
}

// span returns the earliest and the latest time that the server's clock can have when this
// process's reads local.
func (e *refusal) span(local int64) (earliest, latest int64, ok bool) {
	return e.now + local - e.until, e.now + int64(time.Microsecond) + local - e.since, local >= e.until
}

func (m *memory) refuseFrom(best *refusal, known *[weir.MaxCharges]*refusal, used *[weir.MaxCharges]weir.Used, charges []weir.Charge, earliest, latest int64, r *weir.Receipt) bool {
	second := earliest / int64(time.Second)
	*r = weir.Receipt{Now: second, Remembered: true}
	for i := range charges {
		e := known[i]
		if e == nil && charges[i].Held {
			return false
		}
		if e != nil {
			switch {
			case charges[i].Held:
				r.Used[i] = used[i]
				continue
			case e.used.Reset == 0:
				continue
			case latest < e.used.Reset*int64(time.Second) && e.used.Reset <= charges[i].End(second):
				r.Used[i] = used[i]
				continue
			case e == best:
				return false
			}
		}
		if best.used.Reset <= charges[i].End(second) { // this window might end later
			return false
		}
	}
	return true
}

// A standingLine holds four windows.
type standingLine struct {
	mu    sync.Mutex
	slots [4]standing
}

// A standing is one window's. Replies arrive out of order, and counts fall when takes are settled.
// So count is the highest of the answers since turned and of some before it. Once a request that
// was sent after turned is answered, that answer is newer than all that came before turned: they
// are dropped, and the answers since then, which recent is the highest of, take their place.
type standing struct {
	id     id
	reset  int64
	count  uint32
	recent uint32
	turned int64 // this process's clock
}

// noteStanding remembers a window's standing, as the server answered it: the request was sent and
// answered at these times of this process's clock, and the server's was at now. No window of its
// key ends later than end. Of two windows the later wins.
func (m *memory) noteStanding(i id, used weir.Used, now, end, sent, answered int64) {
	if used.Reset == 0 {
		return
	}
	line := &m.standings[i%standingLines]
	line.mu.Lock()
	defer line.mu.Unlock()
	victim := &line.slots[0]
	for k := range line.slots {
		s := &line.slots[k]
		if s.id == i {
			switch {
			case s.reset == used.Reset:
				s.note(uint32(used.Count), sent, answered)
			case s.reset < used.Reset || s.reset > end:
				*s = newStanding(i, used, answered)
			}
			return
		}
		if s.reset <= now {
			s.count = 0 // ended: the first to be replaced
		}
		if s.count < victim.count {
			victim = s
		}
	}
	*victim = newStanding(i, used, answered)
}

func newStanding(i id, used weir.Used, answered int64) standing {
	return standing{id: i, reset: used.Reset, count: uint32(used.Count), turned: answered}
}

func (s *standing) note(count uint32, sent, answered int64) {
	s.count, s.recent = max(s.count, count), max(s.recent, count)
	if sent > s.turned {
		s.count, s.recent, s.turned = s.recent, 0, answered
	}
}

// standing returns a window's last known standing, or the zero Used.
func (m *memory) standing(i id) weir.Used {
	line := &m.standings[i%standingLines]
	line.mu.Lock()
	defer line.mu.Unlock()
	for k := range line.slots {
		if s := &line.slots[k]; s.id == i {
			return weir.Used{Count: int64(s.count), Reset: s.reset}
		}
	}
	return weir.Used{}
}

// forgetStanding forgets a window's standing.
func (m *memory) forgetStanding(i id) {
	line := &m.standings[i%standingLines]
	line.mu.Lock()
	defer line.mu.Unlock()
	for k := range line.slots {
		if line.slots[k].id == i {
			line.slots[k] = standing{}
		}
	}
}
