package upstream

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirlimit/weir/internal/poller"
	"github.com/weirlimit/weir/internal/wire"
)

// A Conn is one connection to one address. It is for one goroutine at a time, with two exceptions:
// one may write while another reads, and any may Close it to end their waits. The Await methods and
// Write set its deadlines, so SetDeadline and its like must not be called. Exactly one of Keep and
// Drop must end its use.
type Conn struct {
	net.Conn             // writes have a deadline of Options.Stall
	Reader   wire.Reader // of the answers

	pool *Pool
	turn turn
	used bool // it carried an exchange
	mine bool // it is in use

	readBy  time.Time // deadlines as they were last set; zero: none
	writeBy time.Time
	wrote   bool      // since it was taken
	since   time.Time // when it was kept

	plain    net.Conn         // below TLS; without TLS the same as Conn
	raw      syscall.RawConn  // of the socket; nil: unknown
	socket   *poller.Conn     // nil: it is not the poller's
	attached bool             // to a task
	peek     func(fd uintptr) // of raw; made once, so that a check allocates nothing
	gone     bool             // peek's result
	ask      inquiry          // what the next read sends first

	closed atomic.Bool // by Close
}

// use makes c the connection of an exchange.
func (c *Conn) use(t turn, now time.Time) {
	t.reused = c.used
	c.ask.fresh = now.Sub(c.since) < freshFor
	c.turn, c.used, c.mine, c.wrote = t, true, true, false
	c.writeWithin(now)
}

// Attach makes reads and writes wait as t does: only t's goroutine may use c until another call.
// Nil ends that; so do Keep and Drop.
func (c *Conn) Attach(t *poller.Task) {
	if t == nil && !c.attached { // others may use it
		return
	}
	c.attached = t != nil
	c.socket.Attach(t)
}

// Reused reports whether the connection carried an exchange before this one.
func (c *Conn) Reused() bool { return c.turn.reused }

// Else returns what Take is asked for after an exchange on c failed before a byte of the request
// went out: an address that was not tried before. failure is why.
func (c *Conn) Else(w Want, failure error) Want {
	w.tried, w.last = w.tried.with(c.turn.at), failure
	return w
}

// Address returns the address that it is connected to.
func (c *Conn) Address() Address { return c.turn.at.Address }

// within reports whether a deadline is between want and an eighth more from now, so that it need
// not be moved. Moving one costs a hundred nanoseconds, this check four.
func within(by, now time.Time, want time.Duration) bool {
	left := by.Sub(now)
	return left >= want && left <= want+want/8
}

// readWithin gives the reads that follow want from now; zero or less: no deadline.
func (c *Conn) readWithin(want time.Duration, now time.Time) {
	if want <= 0 {
		c.AwaitStream()
		return
	}
	if !within(c.readBy, now, want) {
		c.readBy = now.Add(want + want/8)
		_ = c.SetReadDeadline(c.readBy) // fails only on a closed connection, and so will the read
	}
}

func (c *Conn) writeWithin(now time.Time) {
	if stall := c.pool.options.Stall; !within(c.writeBy, now, stall) {
		c.writeBy = now.Add(stall + stall/8)
		_ = c.SetWriteDeadline(c.writeBy)
	}
}

// AwaitHead gives the reads that follow Options.Header from now. It moves the deadline only if it
// has to, so a wait may last up to an eighth longer.
func (c *Conn) AwaitHead(now time.Time) { c.readWithin(c.pool.options.Header, now) }

// continueTime is for how long an upstream may take to answer Expect: 100-continue.
const continueTime = time.Second

// AwaitContinue gives the reads that follow a second, in which an upstream may answer Expect:
// 100-continue. After a time-out the connection can still be used.
func (c *Conn) AwaitContinue(now time.Time) { c.readWithin(continueTime, now) }

// AwaitBody gives the reads that follow Options.Stall from now, up to an eighth more.
func (c *Conn) AwaitBody(now time.Time) { c.readWithin(c.pool.options.Stall, now) }

// AwaitPiece gives the reads that follow Options.Stream from now, up to an eighth more.
func (c *Conn) AwaitPiece(now time.Time) { c.readWithin(c.pool.options.Stream, now) }

// AwaitStream gives the reads that follow no deadline.
func (c *Conn) AwaitStream() {
	if !c.readBy.IsZero() {
		c.readBy = time.Time{}
		_ = c.SetReadDeadline(c.readBy)
	}
}

// maxPiece is the size of the largest write that one deadline covers.
const maxPiece = 64 << 10

// Write writes with a deadline of Options.Stall, up to an eighth more, for each 64 KiB.
func (c *Conn) Write(p []byte) (n int, err error) {
	for {
		// Take has set the deadline of the first write, which comes at once: that saves reading the
		// clock
		if c.wrote {
			c.writeWithin(time.Now())
		}
		c.wrote = true
		m, err := c.Conn.Write(p[n:min(len(p), n+maxPiece)])
		n += m
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// Close closes the connection, so that reads and writes fail at once. Any goroutine may call it.
// Keep or Drop must still follow.
func (c *Conn) Close() error {
	c.closed.Store(true)
	return c.plain.Close()
}

// CloseWrite closes the sending half of a connection with halves, as TCP and TLS have.
func (c *Conn) CloseWrite() error {
	return closeWrite(c.Conn)
}

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Answered records that the head of an answer has come (an interim one is enough), so the address
// is healthy. It is for exchanges that last long, or end with Drop. Keep implies it.
func (c *Conn) Answered() { c.pool.answered(&c.turn) }

// Keep returns a connection whose exchange is complete, both ways, to the pool. The address is
// healthy. If something is buffered that did not belong to the exchange, if enough connections are
// kept, or if the pool is closed, the connection is closed instead.
func (c *Conn) Keep(now time.Time) {
	p, a := c.pool, c.turn.at
	c.since = now
	c.Attach(nil)
	good := len(c.Reader.Buffered()) == 0 && !c.closed.Load()
	p.mu.Lock()
	if !c.mine {
		p.mu.Unlock()
		return
	}
	c.mine = false
	a.busy--
	back := !c.turn.answered && p.success(&c.turn)
	good = good && !p.closed && c.turn.epoch == a.epoch && len(a.kept) < p.options.MaxKept
	if good {
		a.kept = append(a.kept, c)
		if !p.watched {
			p.watched = true
			go p.closeIdle()
		}
	}
	p.mu.Unlock()
	p.logBack(a, back)
	if !good {
		_ = c.plain.Close() // as in Drop
	}
}

// Drop closes a connection that cannot be used again. failure is what went wrong on the upstream's
// side before the head of an answer, and counts against the address; nil: nothing (the client went
// away, the upstream sent Connection: close).
func (c *Conn) Drop(failure error) {
	c.pool.mu.Lock()
	mine := c.mine
	c.mine = false
	c.pool.mu.Unlock()
	if !mine {
		return
	}
	c.Attach(nil)
	// without TLS's close_notify, which would wait for a peer that does not read
	_ = c.plain.Close()
	if errors.Is(failure, net.ErrClosed) {
		failure = nil // we have closed it
	}
	c.pool.end(c.turn, failure)
}

// quiet reports whether a kept connection is as it was left: the other side has neither closed it
// nor sent anything. It is true if that cannot be known.
func (c *Conn) quiet() bool {
	if c.raw != nil {
		c.gone = false
		if err := c.raw.Control(c.peek); err != nil || c.gone {
			return false
		}
	}
	if c.turn.at.tls == nil {
		return true
	}
	// A read that must not wait returns what TLS has already read from the socket.
	_ = c.SetReadDeadline(time.Unix(1, 0))
	var one [1]byte
	_, err := c.Conn.Read(one[:])
	_ = c.SetReadDeadline(c.readBy) // as it was
	return errors.Is(err, os.ErrDeadlineExceeded)
}
