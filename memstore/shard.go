package memstore

import (
	"math/bits"
	"sync"

	"github.com/weirlimit/weir"
)

// A shard counts a share of all keys behind one lock.
type shard struct {
	mu         sync.Mutex
	capacity   int
	overflowed int // shared budgets held
	index      index
	slab       []entry
	free       []int32 // places in slab
	queues     []queue // one for each length of window
	_          [40]byte
}

type entry struct {
	key    key
	used   weir.Used
	shared bool
}

// takeOpen is the whole take where the window is open, as nearly always; false where it is not, or the clock was set back.
func (e *entry) takeOpen(c *weir.Charge, now int64, receipt *weir.Receipt) bool {
	if e.used.Reset <= now || e.used.Reset > now+c.Per {
		return false
	}
	receipt.Allowed = e.used.Fits(c.Cost, c.Limit)
	if receipt.Allowed {
		e.used.Count += c.Cost
	}
	receipt.Used[0].Count, receipt.Used[0].Reset = e.used.Count, e.used.Reset
	return true
}

func (sh *shard) init(capacity int) {
	sh.capacity = max(capacity, 1)
	sh.index, sh.slab, sh.free, sh.queues = index{}, nil, nil, nil
}

// absent marks a slot that has no entry yet.
const absent = -1

// A slot is where one charge is counted.
type slot struct {
	key    key
	entry  int32
	shared bool // whether it is a budget that newcomers share
}

// used returns the slot's window as it stands at now. A reset that was brought nearer, because the clock had been set
// back, is kept also where the take is refused: it must not recede from a caller who waits for it.
func (s slot) used(sh *shard, now, per int64) weir.Used {
	if s.entry == absent {
		return weir.Used{}
	}
	e := &sh.slab[s.entry]
	used := e.used.At(now, per)
	if used.Reset != 0 && used.Reset != e.used.Reset {
		e.used = used
		sh.queue(per).push(expiry{used.Reset, s.entry})
	}
	return used
}

// spend charges the slot, whose window stands at used.
func (sh *shard) spend(s slot, used weir.Used, c *weir.Charge, now int64) weir.Used {
	if c.Cost == 0 {
		return used
	}
	opens := used.Reset == 0
	used = used.Spend(c.Cost, now, c.Per)
	if s.entry == absent || sh.slab[s.entry].key != s.key { // reclaimed since it was found: it had expired
		s.entry = sh.insert(s)
	}
	sh.slab[s.entry].used = used
	if opens {
		sh.queue(c.Per).push(expiry{used.Reset, s.entry})
	}
	return used
}

func (sh *shard) insert(s slot) int32 {
	var i int32
	if n := len(sh.free); n > 0 {
		i = sh.free[n-1]
		sh.free = sh.free[:n-1]
	} else {
		i = int32(len(sh.slab))
		sh.slab = append(sh.slab, entry{})
	}
	sh.slab[i] = entry{key: s.key, shared: s.shared}
	if s.shared {
		sh.overflowed++
	}
	sh.index.add(i, sh.slab)
	return i
}

const (
	reclaimPerTake = 2  // more than one for each window that a take can open, so that the queues drain
	reclaimFull    = 64 // what a newcomer to a full shard may look through for room
)

// reclaim removes expired entries, looking at no more than most expiries of each queue.
func (sh *shard) reclaim(now int64, most int) {
	for i := range sh.queues {
		q := &sh.queues[i]
		for range most {
			x, ok := q.due(now)
			if !ok {
				break
			}
			sh.expire(x, q, now)
		}
	}
}

// expire removes the entry that x speaks of, unless its window has been opened anew since: then another expiry stands
// for it. An expiry from before the clock was set back brings its entry's reset nearer, and comes again then.
func (sh *shard) expire(x expiry, q *queue, now int64) {
	e := &sh.slab[x.entry]
	if x.reset > now && e.used.Reset == x.reset {
		e.used = e.used.At(now, q.per)
		q.push(expiry{e.used.Reset, x.entry})
		return
	}
	if e.used.Reset == 0 || e.used.Reset > now {
		return
	}
	sh.index.remove(e.key, sh.slab)
	if e.shared {
		sh.overflowed--
	}
	*e = entry{}
	sh.free = append(sh.free, x.entry)
}

// queue returns the queue of windows of that length. There are as many as lengths in the policies seen: a handful.
func (sh *shard) queue(per int64) *queue {
	for i := range sh.queues {
		if sh.queues[i].per == per {
			return &sh.queues[i]
		}
	}
	sh.queues = append(sh.queues, queue{per: per})
	return &sh.queues[len(sh.queues)-1]
}

// A queue holds the expiries of windows of one length: they come due in the order in which the windows were opened, but for
// a clock that was set back. One that lies further ahead than one length is from before that, and is due at once: it must
// not stand in the way of those behind it.
type queue struct {
	per   int64
	items []expiry
	head  int
}

type expiry struct {
	reset int64
	entry int32
}

func (q *queue) push(x expiry) {
	if q.head > 32 && q.head > len(q.items)/2 {
		q.items = q.items[:copy(q.items, q.items[q.head:])]
		q.head = 0
	}
	q.items = append(q.items, x)
}

// due removes and returns the first expiry where it has come.
func (q *queue) due(now int64) (expiry, bool) {
	if q.head == len(q.items) {
		return expiry{}, false
	}
	if reset := q.items[q.head].reset; reset > now && reset <= now+q.per {
		return expiry{}, false
	}
	x := q.items[q.head]
	q.head++
	return x, true
}

// each calls f for every member, in ascending order.
func (s *shardSet) each(f func(shard int)) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			f(i*64 + bits.TrailingZeros64(word))
		}
	}
}
