package watch

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
)

// The columns that are counted for a limiter. Near and exempt requests also count as admitted. The
// last three are for limiters in Shadow mode.
const (
	admitted = iota
	refused
	near
	unauthenticated
	unavailable
	exempt
	denied
	misdirected
	wouldAdmit
	wouldRefuse
	skipped
	columns
)

// columnOf returns the column of an outcome.
func columnOf(outcome answer.Outcome) (column int, ok bool) {
	switch outcome {
	case answer.Unlimited, answer.Admitted:
		return admitted, true
	case answer.Refused:
		return refused, true
	case answer.Unauthenticated:
		return unauthenticated, true
	case answer.Unavailable:
		return unavailable, true
	case answer.Denied:
		return denied, true
	case answer.Misdirected:
		return misdirected, true
	}
	return 0, false
}

// span is the number of seconds in a series.
const span = 300

// A limiter has the statistics of one limiter. It takes about 17 KiB while it is busy, and up to
// 70 KiB for its top callers.
type limiter struct {
	name string

	declared // what the policy in force has of it; guarded by Recorder.mu

	totals  [columns]atomic.Uint64
	settled [settlements]atomic.Int64
	ring    [span]atomic.Pointer[bucket]
	last    atomic.Int64 // the last second in which something was counted
	callers callers
}

// A declared is what a policy has of a limiter. The zero value is that of a limiter that it does
// not have.
type declared struct {
	inForce bool
	shadow  bool     // whether it is in Shadow mode
	settles bool     // whether it changes what requests have spent, or holds slots
	windows []string // in the syntax of a policy, with the limit in flight
}

// declare returns what a policy has of its limiters, by name.
func declare(p *weir.Policy) map[string]declared {
	all := make(map[string]declared, len(p.Limiters))
	for i := range p.Limiters {
		l := &p.Limiters[i]
		d := declared{inForce: true, shadow: l.Mode == weir.Shadow, settles: l.Settles()}
		for _, w := range l.Rows() {
			d.windows = append(d.windows, w.String())
		}
		all[l.Name] = d
	}
	return all
}

// A bucket has the counts of one second.
type bucket struct {
	second int64
	counts [columns]atomic.Uint32
}

// add adds the counts of one second. A second that is older than the series counts in the totals
// only.
func (l *limiter) add(second, latest int64, counts *[columns]uint32) {
	for i, n := range counts {
		if n > 0 {
			l.totals[i].Add(uint64(n))
		}
	}
	if second <= latest-span {
		return
	}
	if second > l.last.Load() || latest < l.last.Load()-clockSkew {
		l.last.Store(second)
	}
	slot := &l.ring[uint64(second)%span]
	b := slot.Load()
	for b == nil || b.second != second {
		fresh := &bucket{second: second}
		if slot.CompareAndSwap(b, fresh) {
			b = fresh
			break
		}
		b = slot.Load()
	}
	for i, n := range counts {
		if n > 0 {
			b.counts[i].Add(n)
		}
	}
}

// series returns the counts of the given number of seconds, starting at from. A column of zeros is
// nil.
func (l *limiter) series(from int64, seconds int) (out [columns][]uint32) {
	for i := range seconds {
		second := from + int64(i)
		b := l.ring[uint64(second)%span].Load()
		if b == nil || b.second != second {
			continue
		}
		for column := range out {
			n := b.counts[column].Load()
			if n > 0 && out[column] == nil {
				out[column] = make([]uint32, seconds)
			}
			if n > 0 {
				out[column][i] = n
			}
		}
	}
	return out
}

// limiter returns the statistics of a limiter, which it creates for the first request. It returns
// nil if there are too many limiters.
func (r *Recorder) limiter(name string) *limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.limiterLocked(name)
}

// limiterLocked is limiter for callers that hold mu.
func (r *Recorder) limiterLocked(name string) *limiter {
	l := r.limiters[name]
	if l == nil {
		if len(r.limiters) > maxLimiters { // one more is for requests that no limiter covers
			r.missed++
			return nil
		}
		l = &limiter{name: strings.Clone(name)}
		l.inForce = name == ""
		l.last.Store(r.now())
		r.limiters[l.name] = l
	}
	return l
}

// Declare sets the policy in force. Snapshots show its limiters even if they have no requests.
// Other limiters are removed 300 seconds after their last request, or earlier if there is no room.
// Before the first Declare, no limiter is in force.
func (r *Recorder) Declare(p weir.Policy) {
	all := declare(&p)
	r.mu.Lock()
	var others []*limiter
	for name, l := range r.limiters {
		l.declared = all[name]
		if name == "" {
			l.inForce = true
		} else if !l.inForce {
			others = append(others, l)
		}
	}
	slices.SortFunc(others, func(a, b *limiter) int { return cmp.Compare(b.last.Load(), a.last.Load()) })
	gone := r.remove(others[min(len(others), max(maxLimiters-len(all), 0)):])
	for name, d := range all {
		if l := r.limiterLocked(name); l != nil {
			l.declared = d
		}
	}
	r.mu.Unlock()
	r.collect(gone)
}

// sweep removes the limiters that are not in force, had no request for span seconds, and have none
// in flight.
func (r *Recorder) sweep(now int64) {
	r.mu.Lock()
	var idle []*limiter
	for _, l := range r.limiters {
		if !l.inForce && l.last.Load() <= now-span && l.settled[slots].Load() <= 0 {
			idle = append(idle, l)
		}
	}
	gone := r.remove(idle)
	r.mu.Unlock()
	if len(gone) > 0 {
		r.collect(gone)
	}
}

// remove drops limiters and returns their names. The caller holds mu. Shards may still count in a
// dropped limiter until collect drops its cell.
func (r *Recorder) remove(limiters []*limiter) (names []string) {
	for _, l := range limiters {
		delete(r.limiters, l.name)
		names = append(names, l.name)
		l.callers.mu.Lock()
		l.callers.clear(r)
		l.callers.mu.Unlock()
	}
	return names
}
