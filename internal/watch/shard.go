package watch

import (
	"math/bits"
	mathrand "math/rand/v2"
	"sync"

	"github.com/weirlimit/weir"
)

// A shard counts for one core, most of the time: sync.Pool gives a core the shard that it used last, and who finds it locked all
// the same takes the next one that is free. So its lock is nearly always free, and its memory in the core's own cache. There are
// twice as many as cores.
type shard struct {
	mu    sync.Mutex // of what follows
	cells map[string]*cell
	last  *cell // the one that was used last
	index int

	second int64  // the latest in which a caller was counted
	seen   uint64 // callers in it
	sample *mathrand.ChaCha8

	pending [16]pending // what top callers could not take at once
	waiting int
	buffer  []byte // for values of key sources
	hidden  uint64 // refusals that there was no room to show

	candidate *candidate // that distinct is about
	distinct  recent

	_ [64]byte // the next shard begins in another cache line
}

// A cell is what a shard counted of a limiter, and has not told it yet: in the second that it last counted in, and of the
// candidate.
type cell struct {
	limiter *limiter
	second  int64
	counts  [columns]uint32

	difference *difference
	compared   [comparisons]uint32
}

// lock returns a shard of this core's, or any, locked.
func (r *Recorder) lock() *shard {
	s := r.local.Get().(*shard)
	if s.mu.TryLock() {
		return s
	}
	for i := range r.shards {
		if o := &r.shards[(s.index+i)%len(r.shards)]; o.mu.TryLock() {
			return o
		}
	}
	s.mu.Lock()
	return s
}

func (r *Recorder) unlock(s *shard) {
	s.mu.Unlock()
	r.local.Put(s)
}

// cell returns the shard's cell of a limiter; nil where there are too many limiters.
func (s *shard) cell(r *Recorder, name string) *cell {
	if s.last != nil && s.last.limiter.name == name {
		return s.last
	}
	c := s.cells[name]
	if c == nil {
		l := r.limiter(name)
		if l == nil {
			return nil
		}
		c = &cell{limiter: l}
		s.cells[l.name] = c
	}
	s.last = c
	return c
}

// at turns the cell to a second.
func (c *cell) at(second int64, r *Recorder) {
	if c.second != second {
		c.tell(r)
		c.second = second
	}
}

// tell gives the limiter what the cell has counted.
func (c *cell) tell(r *Recorder) {
	if c.counts != [columns]uint32{} {
		c.limiter.add(c.second, r.latest.Load(), &c.counts)
		c.counts = [columns]uint32{}
	}
}

// everything is what a shard gives every caller's request in a second to the top callers; beyond, the weight doubles each time
// that the number of requests does.
const everything = 2048

// weight returns how many requests the next one stands for, 0 where it is not in the sample. What it returns is right on average
// whatever callers do, since it depends on what came before only.
func (s *shard) weight(second int64) int64 {
	if second > s.second || second < s.second-slack {
		s.second, s.seen = second, 0
	}
	s.seen++
	if s.seen <= everything {
		return 1
	}
	w := uint64(1) << min(bits.Len64((s.seen-1)/everything), 40)
	if s.sample.Uint64()&(w-1) != 0 {
		return 0
	}
	return int64(w)
}

// who tells top callers and the last refusals of a request.
func (s *shard) who(r *Recorder, l *limiter, column int, second int64, binding *weir.Standing, o *Event) {
	shown := column == refused && r.refusals.admits(second)
	if column == refused && !shown {
		s.hidden++
	}
	weight := s.weight(second)
	if weight == 0 && !shown {
		return
	}
	t := touch{hash: r.hash(o.Who), second: second, weight: weight, exempt: o.Decision.Exempt, standing: standingOf(binding)}
	if shown {
		r.refusals.add(s, l, &t, o)
	}
	switch {
	case column == refused:
		t.refused = 1
	case o.Decision.Allowed:
		t.units = o.Decision.Cost
	}
	if weight == 0 || t.units <= 0 && t.refused == 0 {
		return
	}
	if l.callers.mu.TryLock() {
		defer l.callers.mu.Unlock()
		s.buffer = l.callers.add(r, &t, o.Caller, s.buffer)
		return
	}
	if s.waiting == len(s.pending) {
		s.settle(r)
	}
	s.pending[s.waiting] = pending{l, t}
	s.waiting++
}

// A pending touch came while a Snapshot or another core had the limiter's top callers.
type pending struct {
	limiter *limiter
	touch   touch
}

// settle gives top callers what waits for them.
func (s *shard) settle(r *Recorder) {
	for i := range s.pending[:s.waiting] {
		p := &s.pending[i]
		p.limiter.callers.mu.Lock()
		p.limiter.callers.add(r, &p.touch, nil, nil)
		p.limiter.callers.mu.Unlock()
		*p = pending{}
	}
	s.waiting = 0
}

// collect makes every shard tell what it has counted, and forget the limiters that are gone.
func (r *Recorder) collect(gone []string) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		for _, c := range s.cells {
			c.tell(r)
			c.compare(r)
		}
		s.settle(r)
		r.refusals.hidden.Add(s.hidden)
		s.hidden = 0
		for _, name := range gone {
			delete(s.cells, name)
			s.last = nil
		}
		s.mu.Unlock()
	}
}
