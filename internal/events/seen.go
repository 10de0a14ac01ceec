package events

import "sync"

// seenSlots is the number of events that are remembered: 128 KiB.
const seenSlots = 1 << 14

// seen remembers recent events, so that a count that comes back to a percentage within one window
// reports it once. Its size is fixed. An event that takes another's slot makes it forgotten, so a
// forgotten event may be sent again, with the same id. No event is taken for another one, short of
// two ids with the same first 8 bytes. The zero value is ready.
type seen struct {
	mu    sync.Mutex
	slots [seenSlots]uint64
}

// isNew reports whether an event is not remembered, and remembers it.
func (s *seen) isNew(fingerprint uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := &s.slots[fingerprint%seenSlots]
	if *slot == fingerprint {
		return false
	}
	*slot = fingerprint
	return true
}
