package fast

import (
	"runtime/debug"
	"slices"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// The states of the watch for a client that goes away. In each state one goroutine may change it:
//
//	watchOff   the connection's goroutine: to watchHeld if it starts an upload, else to watchable
//	watchHeld  the upload, when it has read the whole body: to watchable
//	watchable  the engine's look at waiting connections: to watching
//
// endWatch changes each of them back to watchOff. The upload has ended before that; if it had not,
// its own change would fail.
const (
	watchOff  int32 = iota
	watchHeld       // an upload reads from the client
	watchable       // no goroutine reads from the client
	watching        // the watch does; done is set
)

// holdWatch is called before an upload reads from the client.
func (c *conn) holdWatch() { c.watch.Store(watchHeld) }

// releaseWatch is called when the upload has read the whole body.
func (c *conn) releaseWatch() {
	c.noteTick()
	c.watch.CompareAndSwap(watchHeld, watchable)
}

// beginWatch is called when nothing more is read from the client before the answer is complete. A
// watch that has begun continues.
func (c *conn) beginWatch() {
	if c.watch.Load() == watchOff {
		c.noteTick()
		c.watch.Store(watchable)
	}
}

// noteTick notes that a wait begins. A store costs more than a look, and ticks are rare.
func (c *conn) noteTick() {
	if now := c.engine.tick.Load(); c.since.Load() != now {
		c.since.Store(now)
	}
}

// isWaitingSince reports whether an exchange has waited for a whole tick.
func (c *conn) isWaitingSince(tick int64) bool {
	return c.watch.Load() == watchable && tick-c.since.Load() >= 2
}

// watchClient starts to read from the client, so that its next byte or its end is noticed.
func (c *conn) watchClient() {
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

func (c *conn) awaitClient() {
	defer func() {
		if failure := recover(); failure != nil {
			c.engine.Log.Error("watching a client panicked", "panic", failure, "stack", string(debug.Stack()))
		}
	}()
	for {
		c.moveDeadline(time.Time{})
		if c.isInterrupted() {
			return
		}
		if len(c.ahead) == maxAhead {
			// The rest stays with the kernel. If that does not report a hang-up either, it is not
			// noticed.
			switch err := pace.AwaitHangup(c.raw); {
			case err == nil:
				c.leave()
				return
			case pace.IsTimeout(err):
				continue
			}
			return
		}
		c.ahead = slices.Grow(c.ahead, 256)
		n, err := c.Conn.Read(c.ahead[len(c.ahead):min(cap(c.ahead), maxAhead)])
		c.ahead = c.ahead[:len(c.ahead)+n]
		if err == nil || pace.IsTimeout(err) {
			continue
		}
		c.leave()
		return
	}
}

// leave ends the exchange of a client that went away.
func (c *conn) leave() {
	c.gone.Store(true)
	c.ctx.cancel()
	if u := c.up.Load(); u != nil {
		_ = u.Close()
	}
}

// maxAhead is the most that is read of the next requests while one is under way.
const maxAhead = 16 << 10

// isGone reports whether the client went away during an exchange, or everything is being cut off.
// No answer can arrive then.
func (c *conn) isGone() bool { return c.gone.Load() || c.engine.cutting.Load() }

// hasLeft is isGone for an answer that took long. It asks the socket too, since the watch is a
// moment late.
func (c *conn) hasLeft() bool { return c.isGone() || pace.HasHungUp(c.raw) }

// endWatch ends the watch, if it runs, so that the connection's goroutine can read from the client
// again. The upload must have ended.
func (c *conn) endWatch() {
	for {
		switch state := c.watch.Load(); {
		case state == watching: // and so done is set
			c.detach()
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
