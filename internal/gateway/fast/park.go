package fast

import (
	"errors"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// The states of a wait for the next request. It begins with a goroutine, and a buffer to read into,
// and continues without them if it takes long: most connections of a server are idle.
const (
	restOff   int32 = iota
	restBegun       // with a buffer, for less than two ticks
	restLong        // it is to continue without
)

// errParked is the error of a wait that goes on without its goroutine.
var errParked = errors.New("the connection is parked")

// park gives the wait for the next request to the poller. It reports false if the goroutine has to
// wait. If it reports true, wake goes on in another goroutine, which may run already. What ends a
// wait of a goroutine ends this one too: a byte, a deadline, the drain by a deadline, and Cut.
func (c *conn) park() bool {
	of := c.task
	of.socket.Attach(nil)
	c.task = task{} // of which nothing is to be kept
	if pace.Park(c.raw, c.wake) {
		return true
	}
	c.task = of
	if of.attached {
		of.socket.Attach(of.turns)
	}
	return false
}

// rested fills the buffer of an idle connection. During a long wait it holds no buffer, and parks
// the connection if that is possible.
func (c *conn) rested() error {
	limit := c.engine.Limits.HeaderBytes
	c.noteTick()
	c.resting.Store(restBegun)
	err := c.in.Fill(limit)
	if c.resting.Swap(restOff) == restBegun {
		return err
	}
	c.moveDeadline(c.deadline) // as it was
	if !pace.IsTimeout(err) || c.phase.Load() != phaseIdle {
		return err
	}
	if c.park() {
		return errParked
	}
	var begin [1]byte
	if _, err := c.Conn.Read(begin[:]); err != nil {
		return err
	}
	c.ahead = append(c.ahead, begin[0])
	return c.in.Fill(limit)
}

// rest ends the wait of a connection for two ticks, so that it continues without a buffer.
func (c *conn) rest(tick int64) {
	if c.resting.Load() != restBegun || tick-c.since.Load() < 2 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resting.CompareAndSwap(restBegun, restLong) {
		_ = c.raw.SetReadDeadline(longAgo)
	}
}
