package redisstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// A memory is what this process remembers of the server's answers: windows that are spent, so that they are refused without
// asking (refusals), and how busy windows stood, so that an outage goes on from there (standings). Both are bounded: what
// does not fit is asked, or begins anew.
type memory struct {
	local     func() int64 // this process's clock, Unix ns
	refusals  [refusalLines]refusalLine
	standings [standingLines]standingLine
}

const (
	refusalLines  = 1 << 13 // of 8 windows: 65,536
	standingLines = 1 << 16 // of 4 windows: 262,144; 7 MiB
	askAgain      = time.Second
)

// A refusal is how one window stood when a take was refused, and when that was. It is immutable but for asked.
type refusal struct {
	id    id
	used  weir.Used
	now   int64        // the server's clock then, in ns
	since int64        // this process's clock when it asked
	until int64        // and when it was answered: the server said now somewhere in between
	asked atomic.Int64 // this process's clock when somebody last went to ask
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

// keep remembers e in place of what is known of its window, of nothing, or of the window that ends first.
func (m *memory) keep(e *refusal) {
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

func (m *memory) forget(i id) {
	line := &m.refusals[i%refusalLines]
	for k := range line {
		if e := line[k].Load(); e != nil && e.id == i {
			line[k].CompareAndSwap(e, nil)
		}
	}
}

// refuse answers a take that has no chance, at this process's time local, and reports whether it did. It says no more than is
// certain: where the server's clock may have come to the reset, or another window of the same take might be what the caller
// has to wait for, the server is asked; and once a second it is asked anyhow, since budget can come back before its time.
func (m *memory) refuse(hashes []hash, charges []weir.Charge, local int64, r *weir.Receipt) bool {
	var known [weir.MaxCharges]*refusal
	var best *refusal
	for i := range charges {
		e := m.refused(hashes[i].id())
		known[i] = e
		if e != nil && e.used.Reset != 0 && !e.used.Fits(charges[i].Cost, charges[i].Limit) && (best == nil || e.used.Reset > best.used.Reset) {
			best = e
		}
	}
	if best == nil {
		return false
	}
	asked := best.asked.Load()
	if local < max(best.until, asked) { // it was read before somebody else asked, or was answered
		local = m.local()
	}
	earliest, latest, ok := best.span(local)
	if !ok {
		return false
	}
	if (local-asked >= int64(askAgain) || local < asked) && best.asked.CompareAndSwap(asked, local) {
		return false
	}
	return m.refuseFrom(best, &known, charges, earliest, latest, r)
}

// span returns the earliest and the latest that the server's clock can say when this process's says local.
func (e *refusal) span(local int64) (earliest, latest int64, ok bool) {
	return e.now + local - e.until, e.now + int64(time.Microsecond) + local - e.since, local >= e.until
}

func (m *memory) refuseFrom(best *refusal, known *[weir.MaxCharges]*refusal, charges []weir.Charge, earliest, latest int64, r *weir.Receipt) bool {
	second := earliest / int64(time.Second)
	*r = weir.Receipt{Now: second, Remembered: true}
	for i := range charges {
		if e := known[i]; e != nil {
			switch {
			case e.used.Reset == 0:
				continue
			case latest < e.used.Reset*int64(time.Second) && e.used.Reset <= second+charges[i].Per:
				r.Used[i] = e.used
				continue
			case e == best:
				return false
			}
		}
		if best.used.Reset <= second+charges[i].Per { // this one may end later, for all that is known
			return false
		}
	}
	return true
}

// A standingLine is four windows and how they stood.
type standingLine struct {
	mu    sync.Mutex
	slots [4]standing
}

type standing struct {
	id    id
	reset int64
	count int64
}

// note remembers how a window stood at now, on the server's clock. Answers overtake each other: of one window the higher
// count holds, of two the later.
func (m *memory) note(i id, used weir.Used, now, per int64) {
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
				s.count = max(s.count, used.Count)
			case s.reset < used.Reset || s.reset > now+per:
				s.reset, s.count = used.Reset, used.Count
			}
			return
		}
		if s.reset <= now {
			s.count = 0 // ended: the first to go
		}
		if s.count < victim.count {
			victim = s
		}
	}
	*victim = standing{i, used.Reset, used.Count}
}

// standing returns how a window stood last; the zero Used where that is not known.
func (m *memory) standing(i id) weir.Used {
	line := &m.standings[i%standingLines]
	line.mu.Lock()
	defer line.mu.Unlock()
	for k := range line.slots {
		if s := &line.slots[k]; s.id == i {
			return weir.Used{Count: s.count, Reset: s.reset}
		}
	}
	return weir.Used{}
}

// drop forgets how a window stood.
func (m *memory) drop(i id) {
	line := &m.standings[i%standingLines]
	line.mu.Lock()
	defer line.mu.Unlock()
	for k := range line.slots {
		if line.slots[k].id == i {
			line.slots[k] = standing{}
		}
	}
}
