package identity

import (
	"sync"
	"sync/atomic"
	"time"
)

// A timedSet holds keys, each until a time. It is bounded by two generations: a full young one
// becomes the old one, so at least the last maxTimed keys are there. The zero value is empty and
// ready. It is safe for concurrent use.
type timedSet[K comparable] struct {
	size       atomic.Int64
	mu         sync.Mutex
	young, old map[K]int64 // Unix nanoseconds
}

const maxTimed = 1 << 15 // keys of a generation

func (t *timedSet[K]) empty() bool { return t.size.Load() == 0 }

// add adds k until then. A key that is there already stays until the later of both times.
func (t *timedSet[K]) add(k K, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.young == nil || len(t.young) >= maxTimed {
		t.old, t.young = t.young, make(map[K]int64)
	}
	t.young[k] = max(t.young[k], until.UnixNano())
	t.size.Store(int64(len(t.young) + len(t.old)))
}

// holds reports whether k is in the set at now, and removes it if its time is over.
func (t *timedSet[K]) holds(k K, now time.Time) bool { return t.left(k, now) > 0 }

// left returns how long k will be in the set from now on; 0 if it is not. It removes k if its time
// is over.
func (t *timedSet[K]) left(k K, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range []map[K]int64{t.young, t.old} {
		until, ok := m[k]
		if !ok {
			continue
		}
		if left := until - now.UnixNano(); left > 0 {
			return time.Duration(left)
		}
		delete(m, k)
		t.size.Store(int64(len(t.young) + len(t.old)))
	}
	return 0
}
