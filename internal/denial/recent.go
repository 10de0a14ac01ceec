package denial

import (
	"bytes"
	"hash/maphash"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

// recent is a cache of ids, so that a client which retries in a loop costs a look-up for each
// refusal and no encryption: it gets the same id as long as all facts are the same. A new id
// replaces the one in its slot. The 1,024 slots take 8 KiB, and with ids of 200 characters at most
// 400 KiB.
type recent struct {
	seed  maphash.Seed
	slots *[1024]atomic.Pointer[cached]
}

// A cached is an id and the facts it was made for. It is immutable.
type cached struct {
	facts
	who []byte // as question.who returns it
	id  string
}

// facts distinguish one refusal of a caller from another.
type facts struct {
	window                  *weir.Window
	limit, count, reset, at int64
	penalty                 bool
}

func newRecent() recent {
	return recent{seed: maphash.MakeSeed(), slots: new([1024]atomic.Pointer[cached])}
}

// A question is a refusal that needs an id.
type question struct {
	decision *weir.Decision
	binding  *weir.Standing
	scratch  *weir.Scratch
	denied   *Facts // of a denied request, which has none of the others; nil: it is not denied
	room     [256]byte
}

func (q *question) facts() facts {
	if q.denied != nil {
		return facts{at: q.denied.At}
	}
	b := q.binding
	return facts{b.Window, b.Limit, b.Count, b.Reset, q.decision.Now, b.Penalty}
}

// who appends the key of the caller in each window of the limiter. The binding window's alone may
// not distinguish all callers whose facts differ.
func (q *question) who(dst []byte) []byte {
	if q.denied != nil {
		dst = appendText(dst, q.denied.Limiter)
		for _, c := range q.denied.Callers {
			dst = append(appendText(dst, c.Source), c.Value...)
		}
		return dst
	}
	standings := q.decision.Standings()
	for i := range standings {
		if standings[i].Limiter == q.binding.Limiter {
			dst = append(dst, q.scratch.Who(&standings[i])...)
		}
	}
	return dst
}

// find returns the cached id for q's facts, or an empty string, and in any case the slot for such
// an id and its present content.
func (r *recent) find(q *question) (id string, slot *atomic.Pointer[cached], seen *cached) {
	who, facts := q.who(q.room[:0]), q.facts()
	slot = &r.slots[maphash.Bytes(r.seed, who)%uint64(len(r.slots))]
	seen = slot.Load()
	if seen != nil && seen.facts == facts && bytes.Equal(seen.who, who) {
		return seen.id, slot, seen
	}
	return "", slot, seen
}

// keep replaces seen in the slot by an id and returns that id, or the one that another goroutine
// has stored for the same facts meanwhile.
func (r *recent) keep(slot *atomic.Pointer[cached], seen *cached, q *question, id string) string {
	if slot.CompareAndSwap(seen, &cached{q.facts(), q.who(nil), id}) {
		return id
	}
	if other, _, _ := r.find(q); other != "" {
		return other
	}
	return id
}
