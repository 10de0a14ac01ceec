package http2

import (
	"time"

	"golang.org/x/net/http2"
)

// A look is what the engine has seen of a connection when it last looked. Only the look uses it.
type look struct {
	received int64 // bytes on the socket
	since    int64 // the tick at which that was another number
	// the tick since which a PING, sent to find out whether the client is there, can have come to
	// it; 0: there is none
	pinged       int64
	acknowledged int64 // bytes, then
}

// pongTime is how long a client may take to answer such a PING.
const pongTime = 15 * time.Second

// restAfter is after how many ticks a connection waits without buffers.
const restAfter = 2

// ticks returns how many ticks a time lasts, one at least.
func ticks(d time.Duration) int64 { return max(int64(d/lookEvery), 1) }

// look ends the connection if its client is too slow, idle, or gone, and frees the memory of one
// that waits.
func (c *conn) look(tick int64) {
	limits := &c.engine.Limits
	waits, midway := c.waits.Load(), c.midway.Load()
	var received int64
	if c.paced != nil {
		received = c.paced.Received()
	}
	if received != c.looked.received || c.looked.since == 0 {
		c.looked = look{received: received, since: tick}
	}
	if waits != 0 && midway == 0 && received != c.received.Load() {
		midway = c.looked.since // a part of a record of TLS has come
	}
	if midway != 0 && tick-midway > ticks(limits.Header) {
		c.stop()
		return
	}
	if waits != 0 && tick-waits >= restAfter && c.resting.CompareAndSwap(false, true) {
		_ = c.raw.SetReadDeadline(longAgo)
	}
	c.mu.Lock()
	c.lookAtStreams(tick)
	quiet := tick - c.looked.since
	switch {
	case c.ending.announced != 0 && !c.ending.final && tick-c.ending.announced > announceFor,
		c.idle != 0 && tick-c.idle > ticks(limits.Idle):
		c.name()
	case c.idle == 0 && c.looked.pinged != 0:
		c.awaitPong(tick)
	case c.idle == 0 && quiet > ticks(limits.Stall):
		c.looked.pinged = tick
		c.appendPing(false, [8]byte{})
	}
	write := c.isReady()
	c.mu.Unlock()
	if write {
		c.engine.serving.Go(c.flush)
	}
}

// awaitPong ends the connection if its client does not answer a PING. A slow client may have
// megabytes of an answer to take before it: while it takes something, it is waited for. The mutex
// is held.
func (c *conn) awaitPong(tick int64) {
	if c.paced != nil {
		if acknowledged := c.paced.Acknowledged(); acknowledged != c.looked.acknowledged {
			c.looked.pinged, c.looked.acknowledged = tick, acknowledged
		}
	}
	if tick-c.looked.pinged > ticks(pongTime) {
		c.fail(errGone)
	}
}

// lookAtStreams ends streams whose answer is complete and whose request goes on for too long. The
// mutex is held.
func (c *conn) lookAtStreams(tick int64) {
	for _, s := range c.streams {
		if s.discardUntil != 0 && tick > s.discardUntil {
			c.reset(s, http2.ErrCodeNo)
		}
	}
}
