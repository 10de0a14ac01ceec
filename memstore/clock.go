package memstore

import (
	"sync/atomic"
	"time"
)

// A register is the store's clock, and the second that a take last read from it.
//
// A take reads the clock once, and before it counts it checks that the register still shows its second. So takes that spend
// have, in the order in which they are counted, seconds that never run backwards, whichever processors they ran on, and the
// clock is not read again while two of them contend for one word. A take that spends nothing may see the next second a moment
// before one that is just being counted in the last: each is right at its own second, which was the clock's during the take.
type register struct {
	wall   int64     // Unix nanoseconds of start
	start  time.Time // with the monotonic clock's reading
	source func() time.Time
	_      [64]byte // its own cache line: all read it, and it is written once a second
	second atomic.Int64
	ticked atomic.Bool // a second has begun since somebody took note
	_      [52]byte
}

// newRegister returns the clock of source, or of the machine where that is nil: its wall clock now, then its monotonic one.
func newRegister(source func() time.Time) *register {
	r := &register{source: source}
	if source == nil {
		r.start = time.Now()
	} else {
		r.start = source()
	}
	r.wall = r.start.UnixNano()
	r.second.Store(r.read())
	return r
}

// read returns the whole Unix seconds, rounded down.
func (r *register) read() int64 {
	var passed time.Duration
	if r.source == nil {
		passed = time.Since(r.start) // cheaper than time.Now
	} else {
		passed = r.source().Sub(r.start)
	}
	now := (r.wall + int64(passed)) / int64(time.Second)
	return min(max(now, 0), maxSecond-longest) // what a word can hold
}

// now reads the clock and has the register show it. A reading that is before what the register showed already when it was
// made is that of a clock that was set back, and is taken for what it is (D6).
func (r *register) now() int64 {
	for {
		shown := r.second.Load()
		now := r.read()
		if now == shown {
			return now
		}
		if r.second.CompareAndSwap(shown, now) {
			r.ticked.Store(true)
			return now
		}
	}
}

// shows reports whether now is still the second.
func (r *register) shows(now int64) bool { return r.second.Load() == now }
