package memstore

import (
	"sync"
	"sync/atomic"
	"time"
)

// A secondClock is the store's clock in whole seconds, and the second that a take last read from
// it.
//
// A take reads the clock once. Before it counts, it checks that no other take has read a different
// second meanwhile (isAt). So the seconds of takes that spend never run backwards in the order in
// which they are counted, on any number of processors, and the clock is not read again while takes
// contend for one word. A take that spends nothing may see the next second just before another is
// counted in the last one. Both are right: each second was the clock's during its take.
type secondClock struct {
	wall   int64     // Unix nanoseconds of start
	start  time.Time // with the monotonic clock's reading
	source func() time.Time

	backs  atomic.Int64 // see setBacks
	backMu sync.Mutex   // held while the clock is set back

	_      [64]byte // a cache line of its own: every take reads second, which changes once a second
	second atomic.Int64
	ticked atomic.Bool // a second has begun since this was last reset
	_      [52]byte
}

// newSecondClock returns a clock that starts at the wall clock of source and advances by the
// difference of its readings. A nil source is time.Now, which advances by the monotonic clock.
func newSecondClock(source func() time.Time) *secondClock {
	r := &secondClock{source: source}
	if source == nil {
		r.start = time.Now()
	} else {
		r.start = source()
	}
	r.wall = r.start.UnixNano()
	r.second.Store(r.read())
	return r
}

// read returns the Unix time in whole seconds, rounded down.
func (r *secondClock) read() int64 {
	var passed time.Duration
	if r.source == nil {
		passed = time.Since(r.start) // cheaper than time.Now
	} else {
		passed = r.source().Sub(r.start)
	}
	now := (r.wall + int64(passed)) / int64(time.Second)
	return min(max(now, 0), maxSecond-longest) // what a word can hold
}

// now reads the clock and stores the second. A second before the stored one means that the clock
// was set back, and it is taken as it is: the store owns the clock (D6).
func (r *secondClock) now() int64 {
	for {
		last := r.second.Load()
		now := r.read()
		if now == last {
			return now
		}
		if now < last {
			r.setBack(last, now)
			continue
		}
		if r.second.CompareAndSwap(last, now) {
			r.ticked.Store(true)
			return now
		}
	}
}

// setBacks returns a number that is another after the clock was set back. It is odd at the moment
// at which it is: a take of that moment may be from before or after.
func (r *secondClock) setBacks() int64 { return r.backs.Load() }

func (r *secondClock) setBack(last, now int64) {
	r.backMu.Lock()
	defer r.backMu.Unlock()
	r.backs.Add(1)
	if r.second.CompareAndSwap(last, now) {
		r.ticked.Store(true)
	}
	r.backs.Add(1)
}

// isAt reports whether now is still the last second that any take has read.
func (r *secondClock) isAt(now int64) bool { return r.second.Load() == now }
