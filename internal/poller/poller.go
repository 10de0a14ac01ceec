// Package poller wakes the goroutines of TCP connections in the order in which they became ready,
// or runs them itself (Task).
//
// Go's runtime polls the network when it has nothing else to run, and then runs the ready
// goroutines in reverse order: the last to become ready runs first. On an overloaded server some
// callers therefore wait a whole round longer than the rest, and they are its 99th percentile. The
// goroutines of a connection that was taken from the runtime by Take are woken first come, first
// served. This works on Linux; on other systems Take returns connections unchanged.
package poller

import (
	"context"
	"net"
	"sync/atomic"
)

// Listen returns a listener that passes each connection accepted by l through Take.
func Listen(l net.Listener) net.Listener {
	taken := &listener{Listener: l}
	taken.nth.Store(begun.Add(1))
	return taken
}

type listener struct {
	net.Listener
	nth atomic.Uint32 // of the last connection, see take
}

// begun counts listeners, dialers and calls of Take: each begins with another poller.
var begun atomic.Uint32

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return take(c, l.nth.Add(1)), nil
}

// Dial returns a function that dials with d and passes each connection through Take.
func Dial(d *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	var nth atomic.Uint32
	nth.Store(begun.Add(1))
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return take(c, nth.Add(1)), nil
	}
}

// A Mark is a moment of a connection: how much its poller had reported by then.
type Mark struct {
	reports uint32
	look    uint64 // the last that had begun
}
