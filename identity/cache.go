package identity

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// A verifiedCache holds credentials that verified, so that the next request with one costs no
// cryptography. Only verified credentials enter it, each user of an entry checks that it is still
// valid, and a look-up compares the whole credential. It is bounded by two generations: a full
// young generation becomes the old one, and an entry that is used moves back to the young one. The
// zero value is empty and ready.
type verifiedCache[V any] struct {
	shards [cacheShards]cacheShard[V]
}

const (
	cacheShards = 16
	// generationBytes bounds one generation of one shard. With 16 shards, two generations and the
	// overhead of each entry that is 32 MiB in all.
	generationBytes = 1 << 20
	entryOverhead   = 256
)

type cacheShard[V any] struct {
	mu         sync.RWMutex
	young, old map[string]*V
	bytes      int // the size of young
	_          [64]byte
}

// shard chooses by the credential's end, which is its signature or checksum.
func (c *verifiedCache[V]) shard(credential string) *cacheShard[V] {
	var end [8]byte
	copy(end[:], credential[max(0, len(credential)-len(end)):])
	// multiplied by 2⁶⁴ over the golden ratio, so that each byte moves the topmost bits
	return &c.shards[binary.LittleEndian.Uint64(end[:])*0x9E3779B97F4A7C15>>60%cacheShards]
}

// find returns the entry of credential, or nil.
func (c *verifiedCache[V]) find(credential string) *V {
	s := c.shard(credential)
	s.mu.RLock()
	v, old := s.young[credential], false
	if v == nil {
		v, old = s.old[credential], true
	}
	s.mu.RUnlock()
	if v != nil && old {
		c.keep(credential, v)
	}
	return v
}

// keep stores v for credential, which it copies.
func (c *verifiedCache[V]) keep(credential string, v *V) {
	s := c.shard(credential)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.young == nil || s.bytes > generationBytes {
		s.old, s.young, s.bytes = s.young, make(map[string]*V), 0
	}
	if _, there := s.young[credential]; !there {
		s.bytes += len(credential) + entryOverhead
		if v, ok := any(v).(interface{ weight() int }); ok {
			s.bytes += v.weight()
		}
	}
	s.young[string(append([]byte(nil), credential...))] = v
}

// drop removes credential.
func (c *verifiedCache[V]) drop(credential string) {
	s := c.shard(credential)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.young, credential)
	delete(s.old, credential)
}

// A spentTable holds addresses that have spent the fallback budget of a limiter. It is bounded like
// verifiedCache. If an address drops out early, its next credentials are verified again, and
// nothing worse happens. The zero value is empty and ready.
type spentTable struct {
	size       atomic.Int64
	mu         sync.Mutex
	young, old map[spentKey]time.Time
}

type spentKey struct {
	limiter string
	addr    netip.Addr
}

const maxSpent = 1 << 15 // entries of a generation

func (t *spentTable) empty() bool { return t.size.Load() == 0 }

func (t *spentTable) add(k spentKey, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.young == nil || len(t.young) >= maxSpent {
		t.old, t.young = t.young, make(map[spentKey]time.Time)
	}
	if until.After(t.young[k]) {
		t.young[k] = until
	}
	t.size.Store(int64(len(t.young) + len(t.old)))
}

// holds reports whether k is spent at now, and removes it if it no longer is.
func (t *spentTable) holds(k spentKey, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range []map[spentKey]time.Time{t.young, t.old} {
		until, ok := m[k]
		if !ok {
			continue
		}
		if now.Before(until) {
			return true
		}
		delete(m, k)
		t.size.Store(int64(len(t.young) + len(t.old)))
	}
	return false
}

// drop removes k.
func (t *spentTable) drop(k spentKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.young, k)
	delete(t.old, k)
	t.size.Store(int64(len(t.young) + len(t.old)))
}
