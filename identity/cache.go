package identity

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
)

// A verifiedCache holds credentials that verified, so that the next request with one costs no
// cryptography. Only verified credentials enter it, each user of an entry checks that it is still
// valid, and a look-up compares the whole credential. A look-up takes no lock. The cache is bounded
// in entries and in bytes: an entry that was not used since the last look at it makes way first.
// The zero value is empty and ready.
type verifiedCache[V any] struct {
	table atomic.Pointer[cacheTable[V]] // nil: nothing was kept yet
}

const (
	cacheSets = 1 << 13
	cacheWays = 8
	// cacheBytes bounds the credentials and what is remembered of them.
	cacheBytes    = 32 << 20
	entryOverhead = 256
)

type cacheTable[V any] struct {
	seed  maphash.Seed
	sets  [cacheSets]cacheSet[V]
	bytes atomic.Int64
	hand  atomic.Uint64 // the set that makes way next, if there are too many bytes
}

// A cacheSet holds the entries of the credentials whose hashes lead to it.
type cacheSet[V any] struct {
	tags [cacheWays]atomic.Uint64 // the hashes of ways, so that a look-up reads few of these
	ways [cacheWays]atomic.Pointer[cacheEntry[V]]
	mu   sync.Mutex // of writers
	next int        // the way that is looked at next for one to make way
}

type cacheEntry[V any] struct {
	credential string
	value      *V
	size       int64
	used       atomic.Bool // since it was last passed over
}

func (t *cacheTable[V]) set(credential string) (s *cacheSet[V], tag uint64) {
	tag = maphash.String(t.seed, credential)
	return &t.sets[tag%cacheSets], tag
}

// find returns the entry of credential, or nil.
func (c *verifiedCache[V]) find(credential string) *V {
	t := c.table.Load()
	if t == nil {
		return nil
	}
	s, tag := t.set(credential)
	for i := range s.tags {
		if s.tags[i].Load() != tag {
			continue
		}
		// a writer may have put another entry there meanwhile
		if e := s.ways[i].Load(); e != nil && e.credential == credential {
			if !e.used.Load() {
				e.used.Store(true)
			}
			return e.value
		}
	}
	return nil
}

// keep stores v for credential, which it copies.
func (c *verifiedCache[V]) keep(credential string, v *V) {
	t := c.table.Load()
	if t == nil {
		c.table.CompareAndSwap(nil, &cacheTable[V]{seed: maphash.MakeSeed()})
		t = c.table.Load()
	}
	e := &cacheEntry[V]{credential: strings.Clone(credential), value: v, size: int64(len(credential)) + entryOverhead}
	if v, ok := any(v).(interface{ weight() int }); ok {
		e.size += int64(v.weight())
	}
	s, tag := t.set(credential)
	s.mu.Lock()
	t.replace(s, s.wayFor(credential), tag, e)
	s.mu.Unlock()
	for range 2 * cacheSets { // twice around, for entries that were used
		if t.bytes.Load() <= cacheBytes {
			return
		}
		t.thin(&t.sets[t.hand.Add(1)%cacheSets])
	}
}

// wayFor returns where the entry of credential belongs: where it is already, else an empty way,
// else one that was not used lately. The set is locked.
func (s *cacheSet[V]) wayFor(credential string) int {
	empty := -1
	for i := range s.ways {
		switch e := s.ways[i].Load(); {
		case e == nil:
			empty = i
		case e.credential == credential:
			return i
		}
	}
	if empty >= 0 {
		return empty
	}
	for {
		s.next = (s.next + 1) % cacheWays
		if !s.ways[s.next].Load().used.Swap(false) {
			return s.next
		}
	}
}

// replace puts e, which may be nil, in a way of a set, which is locked.
func (t *cacheTable[V]) replace(s *cacheSet[V], way int, tag uint64, e *cacheEntry[V]) {
	change := int64(0)
	if was := s.ways[way].Load(); was != nil {
		change = -was.size
	}
	if e != nil {
		change += e.size
	}
	s.ways[way].Store(e)
	s.tags[way].Store(tag)
	t.bytes.Add(change)
}

// thin removes the entries of a set that were not used since it was last thinned.
func (t *cacheTable[V]) thin(s *cacheSet[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.ways {
		if e := s.ways[i].Load(); e != nil && !e.used.Swap(false) {
			t.replace(s, i, 0, nil)
		}
	}
}

// drop removes credential.
func (c *verifiedCache[V]) drop(credential string) {
	t := c.table.Load()
	if t == nil {
		return
	}
	s, _ := t.set(credential)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.ways {
		if e := s.ways[i].Load(); e != nil && e.credential == credential {
			t.replace(s, i, 0, nil)
		}
	}
}
