// Package memstore counts windows in this process's memory, exactly, within a bound.
//
// The counts are spread over shards, each a hash table behind a lock. A take that touches several shards locks them in
// ascending order, so all its windows are charged at one instant or none is. Expired entries are reclaimed a few at a time
// by the takes that open new ones: no goroutine sweeps, no timer runs, and no take waits for another's cleaning.
//
// A flood of distinct keys cannot push a live count out. When a shard is full, newcomers to a window share one budget of
// that window in that shard until it resets: they may be refused early, and nobody ever gets more than the limit.
package memstore

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

const (
	shardCount = 256

	// DefaultMemory bounds the table where Options.Memory is 0.
	DefaultMemory = 256 << 20
	// LeastMemory is the smallest bound that is accepted.
	LeastMemory = 1 << 20

	// entryBytes is what one key is taken to need: its place in the shard's index and slab and in the queue of what expires
	// next. BenchmarkBytesAKey measures 74 at four million keys; the rest is for slices that have just grown.
	entryBytes = 96
)

// Options are the store's settings; the zero value is useful.
type Options struct {
	// Memory bounds the table, in bytes; 0 means DefaultMemory. Less than LeastMemory is an error: no bound is never
	// meant.
	Memory int64

	// Now is the clock; nil means time.Now. It is anchored once, by New, and advanced by the difference of readings from
	// then on, which for time.Now is the monotonic clock's: setting the wall clock moves no window (D6).
	Now func() time.Time
}

// A Store is an in-process weir.Store. It is safe for concurrent use and never returns an error.
type Store struct {
	now    func() int64 // whole Unix seconds
	seeds  [2]maphash.Seed
	shared atomic.Int64
	shards [shardCount]shard
}

var _ weir.InProcess = (*Store)(nil)

// New returns an empty store.
func New(o Options) (*Store, error) {
	memory := o.Memory
	if memory == 0 {
		memory = DefaultMemory
	}
	if memory < LeastMemory {
		return nil, fmt.Errorf("new memstore: %d bytes of memory are too few: at least %d (1 MiB) are needed, 0 means %d (256 MiB)",
			memory, LeastMemory, DefaultMemory)
	}
	s := &Store{
		now:   seconds(o.Now),
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
	}
	for i := range s.shards {
		s.shards[i].init(int(memory / entryBytes / shardCount))
	}
	return s, nil
}

// seconds returns a clock of whole Unix seconds, rounded down.
func seconds(now func() time.Time) func() int64 {
	if now == nil {
		start := time.Now()
		wall := start.UnixNano()
		return func() int64 { return (wall + int64(time.Since(start))) / int64(time.Second) } // cheaper than time.Now
	}
	start := now()
	wall := start.UnixNano()
	return func() int64 { return (wall + int64(now().Sub(start))) / int64(time.Second) }
}

// InProcess marks the store as one that never waits.
func (s *Store) InProcess() {}

// Take implements weir.Store. It ignores ctx, since it never waits, and always returns nil.
func (s *Store) Take(_ context.Context, charges []weir.Charge, receipt *weir.Receipt) error {
	if len(charges) == 1 {
		s.takeOne(&charges[0], receipt)
		return nil
	}
	s.takeAll(charges, receipt)
	return nil
}

// takeOne is takeAll for the common case of one window.
func (s *Store) takeOne(c *weir.Charge, receipt *weir.Receipt) {
	key := s.hash(c.Key)
	sh := s.shard(key)
	sh.mu.Lock()
	now := s.now() // under the lock, so that takes of one key see the clock in the order in which they are counted
	receipt.Now = now
	if i, ok := sh.index.find(key, sh.slab); ok && sh.slab[i].takeOpen(c, now, receipt) {
		sh.mu.Unlock()
		return
	}
	slot := s.find(sh, key, c, now)
	used := slot.used(sh, now, c.Per)
	receipt.Allowed = used.Fits(c.Cost, c.Limit)
	if receipt.Allowed {
		used = sh.spend(slot, used, c, now)
		sh.reclaim(now, reclaimPerTake)
	}
	receipt.Used[0] = used
	sh.mu.Unlock()
}

func (s *Store) takeAll(charges []weir.Charge, receipt *weir.Receipt) {
	var (
		keys  [weir.MaxCharges]key
		slots [weir.MaxCharges]slot
	)
	for i := range charges {
		keys[i] = s.hash(charges[i].Key)
	}
	held := s.lock(keys[:len(charges)])
	now := s.now()
	receipt.Now, receipt.Allowed = now, true
	for i := range charges {
		c, sh := &charges[i], s.shard(keys[i])
		slots[i] = s.find(sh, keys[i], c, now)
		receipt.Used[i] = slots[i].used(sh, now, c.Per)
		if !receipt.Used[i].Fits(c.Cost, c.Limit) {
			receipt.Allowed = false
		}
	}
	if receipt.Allowed {
		for i := range charges {
			receipt.Used[i] = s.shard(keys[i]).spend(slots[i], receipt.Used[i], &charges[i], now)
		}
		for _, k := range keys[:len(charges)] {
			s.shard(k).reclaim(now, reclaimPerTake)
		}
	}
	s.unlock(held)
}

// A key is 128 bits of keyed hash: the store never holds what it was made from, and among 100 million live keys the odds
// that any two meet are about 1 in 10^23.
type key [2]uint64

func (s *Store) hash(b []byte) key {
	return key{maphash.Bytes(s.seeds[0], b), maphash.Bytes(s.seeds[1], b)}
}

func (s *Store) shard(k key) *shard {
	return &s.shards[k[0]%shardCount]
}

// A shardSet has one bit a shard.
type shardSet [shardCount / 64]uint64

// lock locks the shards of keys, each once, in ascending order.
func (s *Store) lock(keys []key) shardSet {
	var set shardSet
	for _, k := range keys {
		i := k[0] % shardCount
		set[i/64] |= 1 << (i % 64)
	}
	set.each(func(i int) { s.shards[i].mu.Lock() })
	return set
}

func (s *Store) unlock(set shardSet) {
	set.each(func(i int) { s.shards[i].mu.Unlock() })
}

// find returns where key is counted at now: its own entry, the budget that newcomers of a full shard share, or a new
// entry that spend will make.
func (s *Store) find(sh *shard, k key, c *weir.Charge, now int64) slot {
	if i, ok := sh.index.find(k, sh.slab); ok {
		return slot{entry: i, key: k}
	}
	if sh.overflowed == 0 && sh.index.used < sh.capacity {
		return slot{entry: absent, key: k}
	}
	return s.findShared(sh, k, c, now)
}

// findShared decides between a new entry and the shared budget. While the shared budget is open, every newcomer stays
// with it, also when room has come free: it may have spent there already.
func (s *Store) findShared(sh *shard, k key, c *weir.Charge, now int64) slot {
	common := s.hash(c.Key[:c.Scope])
	i, ok := sh.index.find(common, sh.slab)
	if ok && sh.slab[i].used.At(now, c.Per) != (weir.Used{}) {
		s.shared.Add(1)
		return slot{entry: i, key: common, shared: true}
	}
	sh.reclaim(now, reclaimFull)
	if sh.index.used < sh.capacity {
		return slot{entry: absent, key: k}
	}
	s.shared.Add(1)
	if i, ok = sh.index.find(common, sh.slab); ok {
		return slot{entry: i, key: common, shared: true}
	}
	return slot{entry: absent, key: common, shared: true}
}

// Stats says how full the store is.
type Stats struct {
	Keys     int   // entries held, expired ones that nobody has reclaimed yet included
	Capacity int   // entries that fit into Options.Memory
	Shared   int64 // takes so far that were counted in a shared budget, because a shard was full
}

// Stats returns the present figures. It locks one shard after the other and is no snapshot.
func (s *Store) Stats() Stats {
	st := Stats{Shared: s.shared.Load()}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		st.Keys += sh.index.used
		st.Capacity += sh.capacity
		sh.mu.Unlock()
	}
	return st
}
