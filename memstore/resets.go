package memstore

import (
	"sync"
	"sync/atomic"
)

// resets are the open windows that an operator has reset, or that StartFrom has raised, until they
// end. A take that was counted before that must not be settled after it: it would give back units
// that its window does not have any more.
type resets struct {
	last  atomic.Uint64 // the number of the last reset
	mu    sync.Mutex
	of    map[uint64]windowReset // by hash
	floor uint64                 // resets up to this one are taken for resets of every window
}

type windowReset struct {
	number uint64
	until  int64 // the reset of the window, in Unix seconds
	raised bool
}

// maxResets is the max number of resets that are kept apart.
const maxResets = 10_000

// note records that a window, which would end at until, is reset or raised. The caller has frozen
// its entry, or writes it by a compare-and-swap of a word that it has read before.
func (r *resets) note(hash uint64, until, now int64, raised bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	number := r.last.Add(1)
	if len(r.of) >= maxResets {
		for h, w := range r.of {
			if w.until <= now {
				delete(r.of, h)
			}
		}
		if len(r.of) > maxResets/2 { // or each of the next would go through all of them again
			r.floor = number
			clear(r.of)
		}
	}
	if r.of == nil {
		r.of = make(map[uint64]windowReset)
	}
	r.of[hash] = windowReset{number, until, raised}
}

// since reports whether a window may have been reset or raised after a take of the given epoch, and
// if so, whether it may still count that take.
func (r *resets) since(hash, epoch uint64) (void, unsure bool) {
	if r.last.Load() < epoch {
		return false, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if epoch <= r.floor {
		return true, true
	}
	w, ok := r.of[hash]
	void = ok && epoch <= w.number
	return void, void && w.raised
}

// epoch returns the epoch of a take that begins now: above every reset before it.
func (r *resets) epoch() uint64 { return r.last.Load() + 1 }
