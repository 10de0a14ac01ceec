package identity

import (
	"hash/maphash"
	"sync"
)

// A refreshedTable finds out whether one subject brings several session tokens that have no sid,
// as a service does that refreshes its tokens. It remembers the last token of some subjects, by
// hashes, in a table of a fixed size: a subject may be forgotten, and then its next two tokens
// show it. It is safe for concurrent use.
type refreshedTable struct {
	seed maphash.Seed

	mu    sync.Mutex
	found bool
	last  [4096]struct{ subject, key uint64 } // 64 KiB
}

// note records a verified session. It returns true once: when a subject has brought a second
// budget.
func (t *refreshedTable) note(c *SessionClaims) bool {
	if sid, _ := c.Claims["sid"].(string); sid != "" || c.Subject == "" {
		return false
	}
	who := appendNamed(appendNamed(nil, 'i', c.Issuer), 's', c.Subject)
	subject, key := maphash.Bytes(t.seed, who), maphash.String(t.seed, c.Key)
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := &t.last[subject%uint64(len(t.last))]
	second := slot.subject == subject && slot.key != key && slot.key != 0
	slot.subject, slot.key = subject, key
	if !second || t.found {
		return false
	}
	t.found = true
	return true
}
