// Package watch keeps recent traffic statistics for operators: what each limiter admitted and
// refused in the last five minutes, the callers that spend most and those that are refused most,
// the last refusals, and what shadow limiters and a candidate policy would have decided.
//
// The statistics are in memory, and their size is bounded. They contain no addresses, sessions or
// agents: a caller is a keyed hash. Requests write them (Observe, Shadow, Candidate); the admin API
// and the dashboard read them (Snapshot).
//
//	watch.go      the API, and the path of one request
//	shard.go      counts of one core, so that cores do not wait for each other
//	series.go     a limiter's totals and its last 300 seconds
//	settled.go    reservations, what became of them, and slots in flight
//	callers.go    top callers: what is shown of them, and what is saved to act on them
//	sketch.go     the heavy hitters of a stream: Space-Saving with decay
//	refusals.go   the last refusals
//	candidate.go  what would change under a candidate policy
//	snapshot.go   the statistics as plain values
//
// A request takes the lock of a shard that no other core uses, and makes a few additions. The top
// callers count every request up to about 2000 a second and core. Above that they count a random
// sample, in which each request has the weight of the requests that it represents.
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
	"github.com/weirlimit/weir/answer"
)

// Options are a Recorder's settings; the zero value is useful.
type Options struct {
	// Now is the clock for requests that no limiter covers, and for snapshots while there is no
	// traffic. nil means time.Now. Everything else uses the time of the store's clock.
	Now func() time.Time

	// Random is read once, for the key of the hashes and the seeds of the samples. nil means
	// crypto/rand's Reader.
	Random io.Reader
}

const (
	maxLimiters = 1000 // the max of a policy

	// clockSkew is by how many seconds the store's clock may go back and be ignored. The machines
	// of a cluster may differ by as much.
	clockSkew = 60
)

// A Recorder collects the statistics. It is safe for concurrent use.
type Recorder struct {
	clock   func() time.Time
	started int64
	key     [2]uint64 // the key of the hashes

	shards []shard
	local  sync.Pool // of *shard: the shard that this core used last
	next   atomic.Uint32

	latest atomic.Int64 // the last second seen on the store's clock; 0: none
	offset atomic.Int64 // the store's clock minus clock, in seconds

	mu       sync.Mutex // guards limiters and missed; not held while waiting for a shard
	limiters map[string]*limiter
	missed   uint64 // requests of limiters beyond maxLimiters

	kept      atomic.Int64 // bytes of saved keys, over all callers
	refusals  refusals
	candidate atomic.Pointer[candidate]
}

// New returns a Recorder, or an error if Options.Random cannot be read.
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
	r.limiterLocked("")
	r.ResetCandidate()
	return r, nil
}

// Observe counts one request: it is for answer.Options.Observe. It does not count an outcome that
// it does not know. It keeps pointers to the windows of o.Decision, which belong to a policy and
// never change, and nothing else of o. It rarely allocates, and never waits for a Snapshot.
func (r *Recorder) Observe(o answer.Observation) {
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
	c.reserve(o.Decision)
	if column == admitted {
		switch {
		case o.Decision.Exempt:
			c.counts[exempt]++
		case binding.Near():
			c.counts[near]++
		}
	}
	if len(o.Who) > 0 {
		s.countCaller(r, c.limiter, column, second, binding, &o)
	}
}

// Shadow counts what a limiter in Shadow mode would have decided.
func (r *Recorder) Shadow(v weir.Shadowed) {
	if v.Limiter == nil {
		return
	}
	column, second := skipped, int64(0)
	if v.Decision != nil && !v.Skipped {
		second, column = v.Decision.Now, wouldRefuse
		if v.Decision.Allowed && !v.Rejects {
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

// second returns the second of an event on the store's clock. It is storeSecond, or if that is 0
// the second of the Recorder's clock, corrected by the last known offset.
func (r *Recorder) second(storeSecond int64) int64 {
	if storeSecond <= 0 {
		return r.clock().Unix() + r.offset.Load()
	}
	if storeSecond != r.latest.Load() {
		r.advanceClock(storeSecond)
	}
	return storeSecond
}

// advanceClock records another second of the store's clock. A second that is a little behind comes
// from another machine and is ignored.
func (r *Recorder) advanceClock(second int64) {
	latest := r.latest.Load()
	if second <= latest && second > latest-clockSkew {
		return
	}
	if !r.latest.CompareAndSwap(latest, second) {
		return
	}
	offset := second - r.clock().Unix()
	if offset == 1 || offset == -1 { // the two clocks were read at different moments
		offset = 0
	}
	r.offset.Store(offset)
}

// now returns the current second on the store's clock.
func (r *Recorder) now() int64 {
	return max(r.clock().Unix()+r.offset.Load(), r.latest.Load())
}

// hash returns the keyed hash of a caller. Without the key, it reveals nothing about the caller.
func (r *Recorder) hash(who []byte) uint64 {
	return siphash.Hash(r.key[0], r.key[1], who)
}
