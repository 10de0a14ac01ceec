package fast

import (
	"runtime/debug"
	"slices"
	"time"
)

// The states of the watch for a client that goes away. At any time one goroutine may move a state on:
//
//	watchOff   the connection's goroutine: to watchHeld if it starts an upload, else to watchable
//	watchHeld  the upload, when it has read the whole body: to watchable
//	watchable  the engine's look at waiting connections: to watching
//
// endWatch moves each of them back to watchOff. The upload has ended before that, and if it had not, its own move
// would fail.
const (
	watchOff  int32 = iota
	watchHeld       // an upload reads from the client
	watchable       // nobody does
	watching        // the watch does; done is set
)

// holdWatch says that an upload is about to read from the client.
func (c *fastConn) holdWatch() { c.watch.Store(watchHeld) }

// releaseWatch says that the upload has read the whole body.
func (c *fastConn) releaseWatch() {
	c.since.Store(c.engine.tick.Load())
	c.watch.CompareAndSwap(watchHeld, watchable)
}

// beginWatch says that nothing more is read from the client before the answer is complete. A watch that has begun goes on.
func (c *fastConn) beginWatch() {
	if c.watch.Load() == watchOff {
		c.since.Store(c.engine.tick.Load())
		c.watch.Store(watchable)
	}
}

// isWaitingSince reports whether an exchange has waited for a whole tick.
func (c *fastConn) isWaitingSince(tick int64) bool {
	return c.watch.Load() == watchable && tick-c.since.Load() >= 2
}

// watchClient begins to read from the client, whose next byte or end is thereby noticed.
func (c *fastConn) watchClient() {
	done := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watch.Load() != watchable {
		return
	}
	c.done = done
	if !c.watch.CompareAndSwap(watchable, watching) {
		return
	}
	c.engine.serving.Go(func() {
		defer close(done)
		c.awaitClient()
	})
}

func (c *fastConn) awaitClient() {
	defer func() {
		if failure := recover(); failure != nil {
			c.engine.log.Error("watching a client panicked", "panic", failure, "stack", string(debug.Stack()))
		}
	}()
	for {
		c.moveDeadline(time.Time{})
		if c.isInterrupted() {
			return
		}
		if len(c.ahead) == mostAhead {
			// The rest stays with the kernel. Where that cannot tell either, who leaves is not missed.
			switch err := awaitHangup(c.raw); {
			case err == nil:
				c.leave()
				return
			case isTimeout(err):
				continue
			}
			return
		}
		c.ahead = slices.Grow(c.ahead, 256)
		n, err := c.Conn.Read(c.ahead[len(c.ahead):min(cap(c.ahead), mostAhead)])
		c.ahead = c.ahead[:len(c.ahead)+n]
		if err == nil || isTimeout(err) {
			continue
		}
		c.leave()
		return
	}
}

// leave ends the exchange of a client that went away.
func (c *fastConn) leave() {
	c.gone.Store(true)
	c.ctx.cancel()
	if u := c.up.Load(); u != nil {
		_ = u.Close()
	}
}

// mostAhead is the most that is read of the next requests while one is under way.
const mostAhead = 16 << 10

func (c *fastConn) isInterrupted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.interrupted
}

// isGone reports whether the client went away during an exchange, or everything is being cut off: there is nobody to answer.
func (c *fastConn) isGone() bool { return c.gone.Load() || c.engine.cutting.Load() }

// hasLeft is isGone for an answer that took long: it asks the socket too, since the watch is a moment late.
func (c *fastConn) hasLeft() bool { return c.isGone() || hasHungUp(c.raw) }

// endWatch ends the watch, if there is one, so that the connection's goroutine can read from the client again. The upload
// must have ended.
func (c *fastConn) endWatch() {
	for {
		switch state := c.watch.Load(); {
		case state == watching: // and so done is set
			c.interrupt()
			<-c.done
			c.watch.Store(watchOff)
			c.resume()
			return
		case state == watchOff || c.watch.CompareAndSwap(state, watchOff):
			return
		}
	}
}
