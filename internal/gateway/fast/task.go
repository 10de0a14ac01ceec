package fast

import "github.com/weirlimit/weir/internal/poller"

// A task is how a connection is served if the limiter waits for no store: by the poller itself,
// from the arrival of a request to the end of its answer. What the poller runs must not wait, but
// for the next request, the upstream's answer, and a client that takes an answer slowly. So detach
// is called before everything else that may wait, or that takes long: the connection goes on in a
// goroutine of its own until it waits for the next request.
type task struct {
	turns    *poller.Task // nil: the connection has a goroutine
	socket   *poller.Conn // of the client
	attached bool         // waits are the task's
	awaits   bool         // a head is awaited
}

// goOn does a part of the connection's work, as a task if that is possible. It may return while the
// task goes on.
func (c *conn) goOn(part func()) {
	socket := poller.Below(c.raw)
	if socket == nil || !c.engine.Decider.InProcess() {
		part()
		return
	}
	poller.Run(func(t *poller.Task) {
		c.task = task{turns: t, socket: socket}
		part()
	})
}

// awaitHead is called before reads of a head, which wait as the task.
func (c *conn) awaitHead() {
	c.task.awaits, c.task.attached = true, c.task.turns != nil
	c.task.socket.Attach(c.task.turns) // of writes too: TLS may write in a read
}

// endAwait is called after them. Other goroutines may read from the client then, and detach is
// called before this one does.
func (c *conn) endAwait() {
	c.task.awaits = false
	if c.task.attached {
		c.task.socket.Attach(nil)
	}
}

// turns returns what the next wait for an upstream is to be as; nil: the goroutine.
func (c *conn) turns() *poller.Task {
	if c.task.attached {
		return c.task.turns
	}
	return nil
}

// detach is called before a wait that is not the task's. It does nothing if that was done since the
// head came. Only the goroutine that serves the connection may call it, or any while the connection
// is detached.
func (c *conn) detach() {
	if !c.task.attached {
		return
	}
	c.task.attached = false
	if c.task.awaits { // else another goroutine may be in a read
		c.task.socket.Attach(nil)
	}
	if u := c.up.Load(); u != nil {
		u.Attach(nil)
	}
	c.task.turns.Detach()
}

// detachForStore is called before the limiter is asked or told something.
func (c *conn) detachForStore() {
	if c.task.attached && !c.engine.Decider.InProcess() {
		c.detach()
	}
}

// Write writes the last bytes of an answer, or any if the connection is detached.
func (c *conn) Write(p []byte) (int, error) {
	if c.task.attached {
		c.endWatch() // it reads, and TLS may write in a read
	}
	if !c.task.attached {
		return c.Conn.Write(p)
	}
	c.task.socket.Attach(c.task.turns)
	defer c.task.socket.Attach(nil)
	return c.Conn.Write(p)
}
