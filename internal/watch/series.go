package watch

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

// What is counted of a limiter. near and exempt are among the admitted; the last three are a shadow limiter's.
const (
	admitted = iota
	refused
	near
	unauthenticated
	unavailable
	exempt
	wouldAdmit
	wouldRefuse
	skipped
	columns
)

// columnOf returns where an outcome is counted, by its name in logs and metrics.
func columnOf(outcome string) (column int, ok bool) {
	switch outcome {
	case "admitted", "unlimited":
		return admitted, true
	case "refused":
		return refused, true
	case "unauthenticated":
		return unauthenticated, true
	case "store_unavailable":
		return unavailable, true
	}
	return 0, false
}

// span is how many seconds are remembered.
const span = 300

// A limiter is what is known of one limiter: about 17 KiB while it is busy, and as much as 70 KiB for its top callers.
type limiter struct {
	name    string
	inForce bool // whether the policy in force has it; under Recorder.mu
	shadow  bool // and only tries it out; likewise

	totals  [columns]atomic.Uint64
	ring    [span]atomic.Pointer[bucket]
	last    atomic.Int64 // the last second that anything was counted in
	callers callers
}

// A bucket is one second of a limiter.
type bucket struct {
	second int64
	counts [columns]atomic.Uint32
}

// add counts what happened in a second. A second that is no longer remembered counts in the totals only.
func (l *limiter) add(second, latest int64, counts *[columns]uint32) {
	for i, n := range counts {
		if n > 0 {
			l.totals[i].Add(uint64(n))
		}
	}
	if second <= latest-span {
		return
	}
	if second > l.last.Load() || latest < l.last.Load()-slack {
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

// series returns the seconds from from on; of a column where all are 0, nil.
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

// limiter returns what is known of a limiter, from its first request on; nil where there are too many.
func (r *Recorder) limiter(name string) *limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open(name)
}

// open is limiter under mu.
func (r *Recorder) open(name string) *limiter {
	l := r.limiters[name]
	if l == nil {
		if len(r.limiters) > maxLimiters { // and one, for the requests that no limiter covers
			r.missed++
			return nil
		}
		l = &limiter{name: strings.Clone(name), inForce: name == ""}
		l.last.Store(r.now())
		r.limiters[l.name] = l
	}
	return l
}

// Declare says which limiters the policy in force has. Those are shown from now on, requests or none; of others what is remembered
// goes 300 seconds after their last request, or sooner where there is no room. Before the first Declare none is in force.
func (r *Recorder) Declare(p weir.Policy) {
	shadow := make(map[string]bool, len(p.Limiters))
	for i := range p.Limiters {
		shadow[p.Limiters[i].Name] = p.Limiters[i].Mode == weir.Shadow
	}
	r.mu.Lock()
	var others []*limiter
	for name, l := range r.limiters {
		l.shadow, l.inForce = shadow[name]
		if name == "" {
			l.inForce = true
		} else if !l.inForce {
			others = append(others, l)
		}
	}
	slices.SortFunc(others, func(a, b *limiter) int { return cmp.Compare(b.last.Load(), a.last.Load()) })
	gone := r.remove(others[min(len(others), max(maxLimiters-len(shadow), 0)):])
	for name, tried := range shadow {
		if l := r.open(name); l != nil {
			l.inForce, l.shadow = true, tried
		}
	}
	r.mu.Unlock()
	r.collect(gone)
}

// sweep removes the limiters that are not in force and have been idle for as long as anything is remembered.
func (r *Recorder) sweep(now int64) {
	r.mu.Lock()
	var idle []*limiter
	for _, l := range r.limiters {
		if !l.inForce && l.last.Load() <= now-span {
			idle = append(idle, l)
		}
	}
	gone := r.remove(idle)
	r.mu.Unlock()
	if len(gone) > 0 {
		r.collect(gone)
	}
}

// remove forgets limiters, under mu, and returns their names. Shards may count in them until they are told.
func (r *Recorder) remove(limiters []*limiter) (names []string) {
	for _, l := range limiters {
		delete(r.limiters, l.name)
		names = append(names, l.name)
		l.callers.mu.Lock()
		l.callers.forget(r)
		l.callers.mu.Unlock()
	}
	return names
}
