package redisstore

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
)

// An epoch grows whenever a server may have taken the place of the one that has counted: with each
// connection, new or ended, and when counters were lost. A server that was restarted, or a promoted
// replica, may have lost a take. To give back what it does not count would admit more than the
// limit, so a take is only settled in its own epoch.
type epoch struct{ n atomic.Uint64 }

// now returns the epoch of a take. It must be read before the connection is chosen.
func (e *epoch) now() uint64 { return e.n.Load() + 1 }

func (e *epoch) end() { e.n.Add(1) }

var errEpoch = errors.New("the connection was replaced since the take: what it has spent stays spent")

// in returns a context that is done with ctx, and whose Err is not nil once the epoch has ended.
// The client looks at Err when it has a connection, before it sends, so nothing of an earlier
// epoch is sent on a new connection.
func (e *epoch) in(ctx context.Context, of uint64) context.Context { return epochContext{ctx, e, of} }

type epochContext struct {
	context.Context
	epoch *epoch
	of    uint64
}

func (c epochContext) Err() error {
	if c.epoch.now() != c.of {
		return errEpoch
	}
	return c.Context.Err()
}

// A watchedConn ends the epoch when the connection ends, on whichever side.
type watchedConn struct {
	net.Conn
	epoch *epoch
	ended atomic.Bool
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !c.ended.Swap(true) {
		c.epoch.end()
	}
	return n, err
}
