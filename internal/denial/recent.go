package denial

import (
	"bytes"
	"hash/maphash"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

// recent are ids that were made of late, so that a caller that hammers costs a look-up each time rather than a sealing: it gets
// the same id for as long as every fact is the same. A slot is whoever's came last to it. 1,024 of them are 8 KiB, and as many
// callers at a time hammer without sealing; ids of 200 characters make that 400 KiB at most.
type recent struct {
	seed  maphash.Seed
	slots *[1024]atomic.Pointer[given]
}

// A given is an id and what it was given for, never changed.
type given struct {
	facts
	who []byte // as question.who returns it
	id  string
}

// facts are what tells one refusal of a caller from another one.
type facts struct {
	window                  *weir.Window
	limit, count, reset, at int64
}

func newRecent() recent {
	return recent{seed: maphash.MakeSeed(), slots: new([1024]atomic.Pointer[given])}
}

// A question is a refusal that wants an id.
type question struct {
	decision *weir.Decision
	binding  *weir.Standing
	scratch  *weir.Scratch
	room     [256]byte
}

func (q *question) facts() facts {
	b := q.binding
	return facts{b.Window, b.Limit, b.Count, b.Reset, q.decision.Now}
}

// who appends who each window of the limiter counts: the one that bound may not tell apart all whom the facts do.
func (q *question) who(dst []byte) []byte {
	standings := q.decision.Standings()
	for i := range standings {
		if standings[i].Limiter == q.binding.Limiter {
			dst = append(dst, q.scratch.Who(&standings[i])...)
		}
	}
	return dst
}

// find returns the id that was given for the same facts; else none, and the slot to keep one in with what it holds.
func (r *recent) find(q *question) (id string, slot *atomic.Pointer[given], seen *given) {
	who, facts := q.who(q.room[:0]), q.facts()
	slot = &r.slots[maphash.Bytes(r.seed, who)%uint64(len(r.slots))]
	seen = slot.Load()
	if seen != nil && seen.facts == facts && bytes.Equal(seen.who, who) {
		return seen.id, slot, seen
	}
	return "", slot, seen
}

// keep remembers an id in place of seen and returns it, or the one that somebody else has kept for the same facts meanwhile.
func (r *recent) keep(slot *atomic.Pointer[given], seen *given, q *question, id string) string {
	if slot.CompareAndSwap(seen, &given{q.facts(), q.who(nil), id}) {
		return id
	}
	if other, _, _ := r.find(q); other != "" {
		return other
	}
	return id
}
