package watch

import (
	"sync"
	"sync/atomic"

	"github.com/axiomhq/hyperloglog"

	"github.com/weirlimit/weir"
)

// What a comparison counts: each weir.Effect, and of the newly refused requests those that lack a
// credential.
const (
	rejectedAnew = weir.NewlyAdmitted + 1
	comparisons  = rejectedAnew + 1
)

// A candidate has the comparisons with one candidate policy, since it was loaded.
type candidate struct {
	since int64
	mu    sync.Mutex // guards by
	by    map[string]*difference
}

// A difference is what would change for one limiter.
type difference struct {
	of       *candidate
	counts   [comparisons]atomic.Uint64
	refused  distinct
	admitted distinct
}

// A distinct counts distinct callers in at most 20 KiB: exactly up to some thousands, then
// with a standard error of 0.8 %.
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

// A recent is a shard's cache of the hashes that it added to distinct counts. A repeated caller
// that is in it takes no lock.
type recent [256]struct {
	to   *distinct
	hash uint64
}

// seen reports whether hash was added to the count already, and adds the pair to the cache.
func (s *recent) seen(to *distinct, hash uint64) bool {
	slot := &s[hash%uint64(len(s))]
	if slot.to == to && slot.hash == hash {
		return true
	}
	slot.to, slot.hash = to, hash
	return false
}

// ResetCandidate drops all comparisons. It is called when the candidate policy changes.
func (r *Recorder) ResetCandidate() {
	r.candidate.Store(&candidate{since: r.now(), by: make(map[string]*difference)})
}

// Candidate counts the candidate policy's decision on a request. A newly refused request counts for
// the candidate's limiter. Any other request counts for the limiter of the policy in force, or for
// the candidate's if the policy in force does not limit it.
func (r *Recorder) Candidate(v weir.Compared) {
	if v.Live == nil || v.Candidate == nil {
		return
	}
	what, of, who := v.Effect(), v.Live, []byte(nil)
	switch {
	case what == weir.NewlyRefused:
		of, who = v.Candidate, v.CandidateWho
	case what == weir.NewlyAdmitted:
		who = v.LiveWho
	case v.Live.Outcome == weir.Unlimited:
		of = v.Candidate
	}
	name := ""
	if l := of.Limiter(); l != nil {
		name = l.Name
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
	if what == weir.NewlyRefused && v.CandidateRejects {
		c.compared[rejectedAnew]++
	}
	if what == weir.Same || len(who) == 0 {
		return
	}
	to := &d.refused
	if what == weir.NewlyAdmitted {
		to = &d.admitted
	}
	if hash := r.hash(who); !s.distinct.seen(to, hash) {
		to.add(hash)
	}
}

// differenceOf returns the comparison of the cell's limiter with a candidate, or nil if there are
// too many limiters.
func (c *cell) differenceOf(r *Recorder, now *candidate) *difference {
	if c.difference != nil && c.difference.of == now {
		return c.difference
	}
	c.flushCompared(r)
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

// flushCompared adds the cell's comparisons to those of its candidate. Comparisons with an earlier
// candidate are added too, but nothing reads them.
func (c *cell) flushCompared(r *Recorder) {
	if c.difference == nil || c.compared == [comparisons]uint32{} {
		return
	}
	for i, n := range c.compared {
		c.difference.counts[i].Add(uint64(n))
	}
	c.compared = [comparisons]uint32{}
	c.limiter.last.Store(max(c.limiter.last.Load(), r.latest.Load()))
}
