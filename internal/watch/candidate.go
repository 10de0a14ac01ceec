package watch

import (
	"sync"
	"sync/atomic"

	"github.com/axiomhq/hyperloglog"

	"github.com/weirlimit/weir"
)

// What a candidate says of a request beside what was decided.
const (
	same = iota
	newlyRefused
	newlyAdmitted
	comparisons
)

// A candidate is what was compared since the candidate policy is the one that it is.
type candidate struct {
	since int64
	mu    sync.Mutex // of by
	by    map[string]*difference
}

// A difference is what would change for one limiter.
type difference struct {
	of       *candidate
	counts   [comparisons]atomic.Uint64
	refused  distinct
	admitted distinct
}

// A distinct counts callers without remembering them: exactly up to some thousands, then within 2 %, in at most 20 KiB.
type distinct struct {
	mu     sync.Mutex
	sketch hyperloglog.Sketch
}

func (d *distinct) add(hash uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sketch.InsertHash(hash)
}

func (d *distinct) count() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sketch.Estimate()
}

// recent is what a shard has told to distinct counts lately, so that those who come again and again cost no lock.
type recent [256]struct {
	to   *distinct
	hash uint64
}

// has notes that hash goes to a count, and reports whether it went there already.
func (s *recent) has(to *distinct, hash uint64) bool {
	slot := &s[hash%uint64(len(s))]
	if slot.to == to && slot.hash == hash {
		return true
	}
	slot.to, slot.hash = to, hash
	return false
}

// ResetCandidate forgets what was compared: the candidate is another from now on.
func (r *Recorder) ResetCandidate() {
	r.candidate.Store(&candidate{since: r.now(), by: make(map[string]*difference)})
}

// Candidate notes what the candidate policy says of a request. Who would be refused newly counts under the candidate's limiter,
// who would be admitted newly under the one that refused it, and all else under the latter too, if there is one.
func (r *Recorder) Candidate(v weir.Compared) {
	if v.Live == nil || v.Candidate == nil {
		return
	}
	what, of, who := same, v.Live, []byte(nil)
	switch {
	case v.Live.Allowed && !v.Candidate.Allowed:
		what, of, who = newlyRefused, v.Candidate, v.CandidateWho
	case !v.Live.Allowed && v.Candidate.Allowed:
		what, who = newlyAdmitted, v.LiveWho
	case v.Live.Outcome == weir.Unlimited:
		of = v.Candidate
	}
	name := ""
	if s := of.Standings(); len(s) > 0 {
		name = s[0].Limiter.Name
	}
	s := r.lock()
	defer r.unlock(s)
	c := s.cell(r, name)
	if c == nil {
		return
	}
	now := r.candidate.Load()
	if s.candidate != now {
		s.candidate, s.distinct = now, recent{}
	}
	d := c.differenceOf(r, now)
	if d == nil {
		return
	}
	c.compared[what]++
	if what == same || len(who) == 0 {
		return
	}
	to := &d.refused
	if what == newlyAdmitted {
		to = &d.admitted
	}
	if hash := r.hash(who); !s.distinct.has(to, hash) {
		to.add(hash)
	}
}

// differenceOf returns where the cell's limiter is compared with a candidate; nil where there are too many limiters.
func (c *cell) differenceOf(r *Recorder, now *candidate) *difference {
	if c.difference != nil && c.difference.of == now {
		return c.difference
	}
	c.compare(r)
	c.difference = now.difference(c.limiter.name)
	return c.difference
}

func (n *candidate) difference(name string) *difference {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.by[name]
	if d == nil && len(n.by) <= maxLimiters {
		d = &difference{of: n}
		n.by[name] = d
	}
	return d
}

// compare tells what the cell has compared; of a candidate that is no more, nobody asks.
func (c *cell) compare(r *Recorder) {
	if c.difference == nil || c.compared == [comparisons]uint32{} {
		return
	}
	for i, n := range c.compared {
		c.difference.counts[i].Add(uint64(n))
	}
	c.compared = [comparisons]uint32{}
	c.limiter.last.Store(max(c.limiter.last.Load(), r.latest.Load()))
}
