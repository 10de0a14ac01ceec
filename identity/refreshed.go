package identity

import (
	"hash/maphash"
	"slices"
	"sync"
)

// A refreshedTable finds out whether a service refreshes tokens that have no sid, so that each is a
// new budget. It is sure of it when one subject brings two. It remembers the last token of some
// subjects, by hashes, in a table of a fixed size: a subject may be forgotten, and then its next
// two tokens show it. Without a subject it can only see that no token has a sid. It is safe for
// concurrent use.
type refreshedTable struct {
	seed maphash.Seed

	mu    sync.Mutex
	found bool
	last  [4096]struct{ subject, key uint64 } // 64 KiB
	some  []uint64                            // different budgets without a sid, while none had one
	done  bool                                // a token had a sid, or there were manyWithoutSid
}

// manyWithoutSid is how many tokens without a sid are seen before WithoutSid is called.
const manyWithoutSid = 20

// A finding is what a verified session has shown.
type finding int

const (
	nothing          finding = iota
	refreshedSubject         // one subject has brought a second budget
	withoutSid               // many tokens came, and none had a sid
)

// note records a verified session. It returns each finding once, and withoutSid only before
// refreshedSubject.
func (t *refreshedTable) note(c *SessionClaims) finding {
	t.mu.Lock()
	defer t.mu.Unlock()
	if sid, _ := c.Claims["sid"].(string); sid != "" {
		t.done = true
		return nothing
	}
	key := maphash.String(t.seed, c.Key)
	many := t.isManieth(key)
	switch {
	case !t.found && t.isSecond(c, key):
		t.found, t.done = true, true
		return refreshedSubject
	case many:
		return withoutSid
	}
	return nothing
}

// isSecond records the token of a subject, and reports whether its last one had another budget.
func (t *refreshedTable) isSecond(c *SessionClaims, key uint64) bool {
	if c.Subject == "" {
		return false
	}
	subject := maphash.Bytes(t.seed, appendNamed(appendNamed(nil, 'i', c.Issuer), 's', c.Subject))
	slot := &t.last[subject%uint64(len(t.last))]
	second := slot.subject == subject && slot.key != key && slot.key != 0
	slot.subject, slot.key = subject, key
	return second
}

// isManieth records a budget without a sid, and reports whether it is number manyWithoutSid, and
// none had a sid.
func (t *refreshedTable) isManieth(key uint64) bool {
	if t.done || slices.Contains(t.some, key) {
		return false
	}
	t.some = append(t.some, key)
	t.done = len(t.some) == manyWithoutSid
	return t.done
}
