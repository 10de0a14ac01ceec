package watch

import (
	"math/bits"
	mathrand "math/rand/v2"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
)

// A shard counts for one core, most of the time. sync.Pool returns the shard that a core used last;
// if that one is locked, the request uses the next free one. So the lock is nearly always free, and
// the shard is in the core's own cache. There are twice as many shards as cores.
type shard struct {
	mu    sync.Mutex // guards all fields below but index
	cells map[string]*cell
	last  *cell // the cell that was used last
	index int

	second int64  // the latest second in which a caller was counted
	seen   uint64 // requests of callers in that second
	sample *mathrand.ChaCha8

	pending  [16]pending // requests that wait for the lock of the top callers
	waiting  int         // length of pending
	buffer   []byte      // for values of key sources
	notShown uint64      // refusals beyond refusalsASecond

	candidate *candidate // the candidate that distinct is for
	distinct  recent

	_ [64]byte // puts the next shard in another cache line
}

// A cell has the counts of a limiter that the shard has not flushed yet: those of one second, and
// those of the comparison with the candidate.
type cell struct {
	limiter *limiter
	second  int64
	counts  [columns]uint32
	settled [settlements]int64 // of any time

	difference *difference
	compared   [comparisons]uint32
}

// lock locks and returns a shard, if possible the one that this core used last.
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

// cell returns the shard's cell of a limiter, or nil if there are too many limiters.
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

// at sets the second that the cell counts in, and flushes the counts of an earlier one.
func (c *cell) at(second int64, r *Recorder) {
	if c.second != second {
		c.flush(r)
		c.second = second
	}
}

// flush adds the counts of the cell to the limiter.
func (c *cell) flush(r *Recorder) {
	if c.counts != [columns]uint32{} {
		c.limiter.add(c.second, r.latest.Load(), &c.counts)
		c.counts = [columns]uint32{}
	}
}

// sampleAbove is the number of requests a second that a shard counts one by one for the top
// callers. Above it the shard takes a sample, whose weight doubles each time the number of requests
// does.
const sampleAbove = 2048

// weight returns how many requests the next request represents, or 0 if it is not in the sample.
// The weights are unbiased for any traffic, since the odds depend on earlier requests only.
func (s *shard) weight(second int64) int64 {
	if second > s.second || second < s.second-clockSkew {
		s.second, s.seen = second, 0
	}
	s.seen++
	if s.seen <= sampleAbove {
		return 1
	}
	w := uint64(1) << min(bits.Len64((s.seen-1)/sampleAbove), 40)
	if s.sample.Uint64()&(w-1) != 0 {
		return 0
	}
	return int64(w)
}

// countCaller counts a request for the top callers, and adds it to the last refusals if it was
// refused.
func (s *shard) countCaller(r *Recorder, l *limiter, column int, second int64, binding *weir.Standing, o *answer.Observation) {
	shown := column == refused && r.refusals.admits(second)
	if column == refused && !shown {
		s.notShown++
	}
	weight := s.weight(second)
	if weight == 0 && !shown {
		return
	}
	t := touch{hash: r.hash(o.Who), second: second, weight: weight, exempt: o.Decision.Exempt, limiter: binding.Limiter, standing: standingOf(binding)}
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
	s.count(r, l, &t, o.Caller)
}

// count adds a touch to the top callers of a limiter, or to the pending ones.
func (s *shard) count(r *Recorder, l *limiter, t *touch, caller weir.Keys) {
	if l.callers.mu.TryLock() {
		defer l.callers.mu.Unlock()
		s.buffer = l.callers.add(r, t, caller, s.buffer)
		return
	}
	if s.waiting == len(s.pending) {
		s.flushPending(r)
	}
	s.pending[s.waiting] = pending{l, *t}
	s.waiting++
}

// A pending touch arrived while a Snapshot or another core held the lock of the limiter's top
// callers.
type pending struct {
	limiter *limiter
	touch   touch
}

// flushPending counts the pending touches. It waits for the locks of their top callers.
func (s *shard) flushPending(r *Recorder) {
	for i := range s.pending[:s.waiting] {
		p := &s.pending[i]
		p.limiter.callers.mu.Lock()
		p.limiter.callers.add(r, &p.touch, nil, nil)
		p.limiter.callers.mu.Unlock()
		*p = pending{}
	}
	s.waiting = 0
}

// collect flushes every shard, and drops the cells of the limiters in gone.
func (r *Recorder) collect(gone []string) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		for _, c := range s.cells {
			c.flush(r)
			c.flushSettled()
			c.flushCompared(r)
		}
		s.flushPending(r)
		r.refusals.notShown.Add(s.notShown)
		s.notShown = 0
		for _, name := range gone {
			delete(s.cells, name)
			s.last = nil
		}
		s.mu.Unlock()
	}
}
