package sample

import (
	"net/http"
	"sync"

	"github.com/weirlimit/weir/identity"
)

// How many requests may be held open at a time, streams and waits alike. One costs about 45 KiB, as measured with 2,000
// streams over HTTP/1.1, each on a connection of its own: two goroutines (its own and the connection's reader) with 21 KiB
// of stack, 21 KiB of buffers and request, and next to nothing in the feed. A stream that is behind keeps 64 KiB of
// events more, for as long as its client has for a write. Addresses are cheap, IPv6 networks above all: it is the third
// bound that keeps the whole below half a gigabyte.
const (
	heldPerSession = 8
	heldPerAddress = 64 // counted as the limiters count addresses: IPv4 whole, IPv6 by its network
	heldInAll      = 10_000
)

// held counts the requests that are held open. Whoever has none is not in it. It is safe for concurrent use.
type held struct {
	perSession, perAddress, inAll int

	mu        sync.Mutex
	sessions  map[string]int
	addresses map[string]int
	all       int
}

func newHeld() *held {
	return &held{
		perSession: heldPerSession, perAddress: heldPerAddress, inAll: heldInAll,
		sessions: map[string]int{}, addresses: map[string]int{},
	}
}

// hold takes a place, which release gives back. The error says which bound stands in the way.
func (h *held) hold(session, address string) (release func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	const instead = "end one of them, or ask without \"wait\" and without text/event-stream"
	switch {
	case h.sessions[session] >= h.perSession:
		return nil, refuse(http.StatusConflict, "this session has %d streams and waits open, which is as many as it may: %s", h.perSession, instead)
	case h.addresses[address] >= h.perAddress:
		return nil, refuse(http.StatusConflict, "your address has %d streams and waits open, which is as many as it may: %s", h.perAddress, instead)
	case h.all >= h.inAll:
		return nil, refuse(http.StatusServiceUnavailable, "the server has %d streams and waits open, which is as many as it can: "+
			"ask again later, or without \"wait\" and without text/event-stream", h.inAll)
	}
	h.sessions[session]++
	h.addresses[address]++
	h.all++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		countDown(h.sessions, session)
		countDown(h.addresses, address)
		h.all--
	}, nil
}

// countDown forgets who has none left.
func countDown(counts map[string]int, key string) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

// hold takes a place for r. It must be released when r ends.
func (b *Backend) hold(r *request) (release func(), err error) {
	address, _ := b.caller(r).AppendKey(nil, identity.IP) // where there is none, all of those are one
	return b.held.hold(r.session.ID, string(address))
}
