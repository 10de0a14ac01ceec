package redisstore

import (
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

// marks are what this process knows of the order of its takes and of operators' resets. The
// server's clock in whole milliseconds does not tell it.
type marks struct {
	// the latest take of which this process knows, in ms of the server's clock
	last         atomic.Int64
	begun, ended atomic.Uint64 // resets by this process

	any atomic.Bool // of has entries
	mu  sync.Mutex
	of  map[id]int64 // by window, the mark of the last reset by this process
}

// maxMarks is the number of windows whose marks are known. A take right after the reset of another
// window cannot be settled.
const maxMarks = 1 << 12

// begin begins a reset. It returns a time after every take that has been answered, and what ends
// it.
func (m *marks) begin() (after int64, end func()) {
	m.begun.Add(1)
	return m.last.Load() + 1, func() { m.ended.Add(1) }
}

// noteReset records the mark of a window.
func (m *marks) noteReset(i id, mark int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil || len(m.of) >= maxMarks {
		m.of = make(map[id]int64)
	}
	m.of[i] = max(m.of[i], mark) // 0: the window was not open
	m.any.Store(true)
}

// A place is where a take is among the resets by this process.
type place struct {
	resets  uint64 // that had begun before the take
	overlap bool   // one of them had not ended
	mark    int64  // the latest mark of its windows
	mixed   bool   // not all of them have that mark
}

// place returns the place of a take that is about to be sent.
func (m *marks) place(charges []weir.Charge, hashes []hash) (p place) {
	ended := m.ended.Load()
	p.resets = m.begun.Load()
	p.overlap = p.resets != ended
	if !m.any.Load() {
		return p
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	windows := 0
	for i := range charges {
		if charges[i].Held {
			continue
		}
		mark := m.of[hashes[i].id()]
		p.mixed = p.mixed || windows > 0 && mark != p.mark
		p.mark = max(p.mark, mark)
		windows++
	}
	return p
}

// settleable returns the time of an answered take, which is later than the marks of its windows. It
// returns false if the take may have been before a reset or after it.
func (m *marks) settleable(p *place, at int64) (int64, bool) {
	if p.overlap || p.resets != m.begun.Load() {
		return at, false
	}
	if at <= p.mark {
		if p.mixed {
			return at, false
		}
		at = p.mark + 1
	}
	for {
		last := m.last.Load()
		if at <= last || m.last.CompareAndSwap(last, at) {
			return at, true
		}
	}
}

// resetName follows a window's name in the name of the mark of its last reset by an operator.
const resetName = ":reset"

// allResetsName follows the prefix in the name of the mark of the last reset of any window.
const allResetsName = ":resets"

// resetsNumberName follows the prefix in the name of what differs after each reset: the marks of
// two may be equal.
const resetsNumberName = allResetsName + ":number"
