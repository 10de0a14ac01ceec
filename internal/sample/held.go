package sample

import (
	"net/http"
	"sync"

	"github.com/weirlimit/weir/identity"
)

// The max numbers of requests held open at a time, streams and waits alike. Measured with 2,000
// streams over HTTP/1.1, each on its own connection, a held request costs about 45 KiB: two
// goroutines (its own and the connection's reader) with 21 KiB of stacks, and 21 KiB of buffers and
// request. A slow stream has 64 KiB of events more until its write deadline. Because addresses are
// cheap, IPv6 networks above all, only maxHeld keeps the total below half a gigabyte.
const (
	maxHeldPerSession = 8
	// Addresses are those that limiters count: IPv4 whole, IPv6 by its network.
	maxHeldPerAddress = 64
	maxHeld           = 10_000
)

// held counts the requests that are held open. Its maps have only sessions and addresses with such
// requests. It is safe for concurrent use.
type held struct {
	perSession, perAddress, inAll int

	mu        sync.Mutex
	sessions  map[string]int
	addresses map[string]int
	all       int
}

func newHeld() *held {
	return &held{
		perSession: maxHeldPerSession, perAddress: maxHeldPerAddress, inAll: maxHeld,
		sessions: map[string]int{}, addresses: map[string]int{},
	}
}

// hold counts a request until release is called, or refuses it at a bound.
func (h *held) hold(session, address string) (release func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	const instead = "end one of them, or send the request without \"wait\" and text/event-stream"
	switch {
	case h.sessions[session] >= h.perSession:
		return nil, refuse(http.StatusConflict, "this session has %d streams and waits open, the maximum: %s", h.perSession, instead)
	case h.addresses[address] >= h.perAddress:
		return nil, refuse(http.StatusConflict, "your address has %d streams and waits open, the maximum: %s", h.perAddress, instead)
	case h.all >= h.inAll:
		return nil, refuse(http.StatusServiceUnavailable, "the server has %d streams and waits open, the maximum: "+
			"try again later, or without \"wait\" and text/event-stream", h.inAll)
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

// countDown decrements a count and deletes it at 0.
func countDown(counts map[string]int, key string) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

// hold counts r as held open. release must be called when r ends.
func (b *Backend) hold(r *request) (release func(), err error) {
	// Callers without an address share one count.
	address, _ := b.caller(r).AppendKey(nil, identity.IP)
	return b.held.hold(r.session.ID, string(address))
}
