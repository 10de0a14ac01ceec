package watch

import (
	"sync/atomic"

	"github.com/weirlimit/weir/answer"
)

const (
	refusalsShown   = 256  // refusals that are kept
	refusalsASecond = 1000 // max refusals of one second that are added
)

// A refusals is a ring of the last refusals. Its methods take no lock, so requests do not wait for
// readers.
type refusals struct {
	last     atomic.Uint64 // number of the last refusal; the first is 1
	ring     [refusalsShown]atomic.Pointer[refusal]
	pace     atomic.Uint64 // low 48 bits: a second; high 16 bits: refusals added in it
	notShown atomic.Uint64 // refusals beyond refusalsASecond
}

// A refusal is an entry of the ring.
type refusal struct {
	number     uint64
	second     int64
	limiter    string
	hash       uint64
	kind, name string
	denial     string
	standing   standing
}

// admits reports whether another refusal of a second may be added. Once a second has had its share,
// the call is a single read of memory that is not written.
func (f *refusals) admits(second int64) bool {
	const low = 1<<48 - 1
	now := uint64(second) & low
	for {
		pace := f.pace.Load()
		then, n := pace&low, pace>>48
		if now > then || now+clockSkew < then {
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

// add adds a refusal to the ring.
func (f *refusals) add(s *shard, l *limiter, t *touch, o *answer.Observation) {
	v := &refusal{second: t.second, limiter: l.name, hash: t.hash, denial: o.Denial, standing: t.standing}
	v.kind, v.name, s.buffer = describe(t.standing.window, o.Caller, s.buffer)
	v.number = f.last.Add(1)
	slot := &f.ring[v.number%refusalsShown]
	for {
		old := slot.Load()
		if old != nil && old.number > v.number || slot.CompareAndSwap(old, v) {
			return // a newer refusal is not overwritten
		}
	}
}

// after returns the refusals after a number, oldest first, and the number for the next call. If a
// refusal is still being written, it and the later ones are left for the next call.
func (f *refusals) after(number uint64) (list []*refusal, next uint64) {
	last := f.last.Load()
	if number > last { // the number is from before a restart
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
