// Package watch remembers what is going on, for an operator to look at: what each limiter admitted and refused in the last five
// minutes, who spends most and who is refused most, the last refusals, what shadow limiters and a candidate policy would have said.
//
// It lives in memory, is bounded whatever callers do, and shows nobody's address, session or agent: a caller is a keyed hash.
// Requests feed it (Observe, Shadow, Candidate), an admin API and a dashboard read it (Snapshot).
//
//	watch.go      what people call; one request, on its way
//	shard.go      what one core counts by itself, so that cores do not wait for each other
//	series.go     a limiter's totals and its last 300 seconds
//	callers.go    who: top callers, what is shown of them, what is kept to act on them
//	sketch.go     the heavy hitters of a stream: Space-Saving with decay, pure
//	refusals.go   the last refusals
//	candidate.go  what would change under a candidate policy
//	snapshot.go   all of it as plain values
//
// A request costs the lock of a shard that no other core uses, and a few plain additions. Top callers are fed every request
// while there are fewer than about 2000 a second and core, and a random sample beyond, each with the weight of those it stands for.
package watch

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	mathrand "math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dchest/siphash"

	"github.com/weirlimit/weir"
)

// Options are a Recorder's settings; the zero value is useful.
type Options struct {
	// Now is the clock of what has no clock of its own: requests that no limiter covers, and pages that ask while nothing happens.
	// nil means time.Now. Everything else is told by the store's clock.
	Now func() time.Time

	// Random is read once, for the key of the hashes and the seeds of the samples; nil means crypto/rand's Reader.
	Random io.Reader
}

// An Event is one request that was answered.
type Event struct {
	Limiter  string         // empty: no limiter covers it
	Outcome  string         // "unlimited", "admitted", "refused", "unauthenticated" or "store_unavailable"; another counts nowhere
	Decision *weir.Decision // nil: unlimited. Its windows, which belong to a policy and never change, are kept; nothing else is
	Denial   string         // the id that the 429 carries; empty: none
	Who      []byte         // who the binding window counts (weir.Scratch.Who); not kept
	Caller   weir.Keys      // asked only before Observe returns, and seldom; nil: a caller's kind is not known
}

const (
	maxLimiters = 1000 // a policy's bound
	slack       = 60   // seconds that a store's clock may go back before it is believed; machines of a cluster may differ by as much
)

// A Recorder remembers what is going on. It is safe for concurrent use.
type Recorder struct {
	clock   func() time.Time
	started int64
	key     [2]uint64 // of the hashes

	shards []shard
	local  sync.Pool // of *shard: which one this core used last
	next   atomic.Uint32

	latest atomic.Int64 // the last second of the store's clock that was seen; 0: none
	offset atomic.Int64 // that clock's seconds, less those of clock

	mu       sync.Mutex // of what follows; held by nobody who waits for a shard
	limiters map[string]*limiter
	missed   uint64 // requests of limiters that there was no room for

	kept      atomic.Int64 // bytes of key sources' values, over all callers
	refusals  refusals
	candidate atomic.Pointer[candidate]
}

// New returns a Recorder. It errs where Options.Random does.
func New(o Options) (*Recorder, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	r := &Recorder{clock: o.Now, limiters: make(map[string]*limiter)}
	var key [16]byte
	if _, err := io.ReadFull(o.Random, key[:]); err != nil {
		return nil, fmt.Errorf("new recorder: read 16 random bytes: %w", err)
	}
	r.key = [2]uint64{binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:])}
	r.shards = make([]shard, max(4, 2<<bits.Len(uint(runtime.GOMAXPROCS(0)-1))))
	for i := range r.shards {
		var seed [32]byte
		if _, err := io.ReadFull(o.Random, seed[:]); err != nil {
			return nil, fmt.Errorf("new recorder: read 32 random bytes: %w", err)
		}
		r.shards[i].index = i
		r.shards[i].sample = mathrand.NewChaCha8(seed)
		r.shards[i].cells = make(map[string]*cell)
	}
	r.local.New = func() any { return &r.shards[int(r.next.Add(1))%len(r.shards)] }
	r.started = o.Now().Unix()
	r.open("")
	r.ResetCandidate()
	return r, nil
}

// Observe notes one request. It allocates nothing but once in a while, and never waits for a Snapshot.
func (r *Recorder) Observe(o Event) {
	column, ok := columnOf(o.Outcome)
	if !ok {
		return
	}
	var binding *weir.Standing
	var second int64
	if d := o.Decision; d != nil {
		second = d.Now
		if s := d.Standings(); len(s) > 0 {
			binding = &s[0]
		}
	}
	second = r.second(second)
	s := r.lock()
	defer r.unlock(s)
	c := s.cell(r, o.Limiter)
	if c == nil {
		return
	}
	c.at(second, r)
	c.counts[column]++
	if binding == nil {
		return
	}
	if column == admitted {
		switch {
		case o.Decision.Exempt:
			c.counts[exempt]++
		case binding.Near():
			c.counts[near]++
		}
	}
	if len(o.Who) > 0 {
		s.who(r, c.limiter, column, second, binding, &o)
	}
}

// Shadow notes what a limiter in Shadow mode would have said.
func (r *Recorder) Shadow(v weir.Shadowed) {
	if v.Limiter == nil {
		return
	}
	column, second := skipped, int64(0)
	if v.Decision != nil && !v.Skipped {
		second, column = v.Decision.Now, wouldRefuse
		if v.Decision.Allowed {
			column = wouldAdmit
		}
	}
	second = r.second(second)
	s := r.lock()
	defer r.unlock(s)
	if c := s.cell(r, v.Limiter.Name); c != nil {
		c.at(second, r)
		c.counts[column]++
	}
}

// second returns the second that something happened in, by the store's clock: the one given, or where that is 0 what the clock
// says, corrected by what the store last said.
func (r *Recorder) second(told int64) int64 {
	if told <= 0 {
		return r.clock().Unix() + r.offset.Load()
	}
	if told != r.latest.Load() {
		r.moved(told)
	}
	return told
}

// moved notes that the store's clock shows another second. One that is a little behind is another machine's.
func (r *Recorder) moved(second int64) {
	latest := r.latest.Load()
	if second <= latest && second > latest-slack {
		return
	}
	if !r.latest.CompareAndSwap(latest, second) {
		return
	}
	offset := second - r.clock().Unix()
	if offset == 1 || offset == -1 { // the clock was read a moment later, and that is all
		offset = 0
	}
	r.offset.Store(offset)
}

// now returns the present second by the store's clock.
func (r *Recorder) now() int64 {
	return max(r.clock().Unix()+r.offset.Load(), r.latest.Load())
}

// hash tells callers apart, and tells nothing of them to whoever has not its key.
func (r *Recorder) hash(who []byte) uint64 {
	return siphash.Hash(r.key[0], r.key[1], who)
}
