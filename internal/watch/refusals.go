package watch

import "sync/atomic"

const (
	refusalsShown   = 256  // refusals that are remembered
	refusalsASecond = 1000 // refusals of a second that are remembered at most
)

// refusals are the last ones. They are written without a lock, so that nobody waits for a page that reads them.
type refusals struct {
	last   atomic.Uint64 // number of the last refusal; they count from 1
	ring   [refusalsShown]atomic.Pointer[refusal]
	pace   atomic.Uint64 // a second's lower 48 bits, and how many refusals of it are shown in the other 16
	hidden atomic.Uint64 // refusals of seconds that had too many
}

// A refusal is what is kept of one.
type refusal struct {
	number     uint64
	second     int64
	limiter    string
	hash       uint64
	kind, name string
	denial     string
	standing   standing
}

// admits reports whether another refusal of a second may be shown. Once a second has had its share this is one read of memory that
// nobody writes.
func (f *refusals) admits(second int64) bool {
	const low = 1<<48 - 1
	now := uint64(second) & low
	for {
		pace := f.pace.Load()
		then, n := pace&low, pace>>48
		if now > then || now+slack < then {
			then, n = now, 0
		}
		if n >= refusalsASecond {
			return false
		}
		if f.pace.CompareAndSwap(pace, then|(n+1)<<48) {
			return true
		}
	}
}

// add writes a refusal.
func (f *refusals) add(s *shard, l *limiter, t *touch, o *Event) {
	v := &refusal{second: t.second, limiter: l.name, hash: t.hash, denial: o.Denial, standing: t.standing}
	v.kind, v.name, s.buffer = describe(t.standing.window, o.Caller, s.buffer)
	v.number = f.last.Add(1)
	slot := &f.ring[v.number%refusalsShown]
	for {
		old := slot.Load()
		if old != nil && old.number > v.number || slot.CompareAndSwap(old, v) {
			return // one that is newer stays
		}
	}
}

// after returns the refusals after a number, oldest first, and the number to go on from. One that is being written, and what comes
// after it, is for the next time.
func (f *refusals) after(number uint64) (list []*refusal, next uint64) {
	last := f.last.Load()
	if number > last { // of another process, before a restart
		number = 0
	}
	next = number
	for n := max(number, last-min(last, refusalsShown)) + 1; n <= last; n++ {
		v := f.ring[n%refusalsShown].Load()
		if v == nil || v.number < n {
			break
		}
		next = n
		if v.number == n {
			list = append(list, v)
		}
	}
	return list, next
}
