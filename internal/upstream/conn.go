package upstream

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirlimit/weir/internal/wire"
)

// A Conn is one connection to one address, for one goroutine at a time, but for Close, by which another ends what this one waits
// for, and for writing in one goroutine while another reads. Its deadlines are its own: the Await methods and Write move them, and
// SetDeadline and its like must not be called. Exactly one of Keep and Drop ends its use.
type Conn struct {
	net.Conn             // writes have a deadline of Options.Stall
	Reader   wire.Reader // of what comes back

	pool *Pool
	turn turn
	used bool // it carried an exchange
	mine bool // it is taken

	readBy  time.Time // deadlines as they were last set; zero: none
	writeBy time.Time
	wrote   bool      // since it was taken
	since   time.Time // when it was kept

	plain net.Conn         // what TLS is spoken over; without TLS the same as Conn
	raw   syscall.RawConn  // of the socket; nil: unknown
	peek  func(fd uintptr) // of raw; made once, so that trying a connection allocates nothing
	gone  bool             // what peek found
	ask   inquiry          // what the next read sends first

	closed atomic.Bool // by Close
}

// use makes c the connection of an exchange that begins.
func (c *Conn) use(t turn, now time.Time) {
	t.reused = c.used
	c.turn, c.used, c.mine, c.wrote = t, true, true, false
	c.writeWithin(now)
}

// Reused reports whether the connection carried an exchange before this one.
func (c *Conn) Reused() bool { return c.turn.reused }

// Address returns where it leads.
func (c *Conn) Address() Address { return c.turn.at.Address }

// within reports whether a deadline leaves between want and an eighth more from now on, so that it can stay. Moving one costs a
// hundred nanoseconds, this four.
func within(by, now time.Time, want time.Duration) bool {
	left := by.Sub(now)
	return left >= want && left <= want+want/8
}

func (c *Conn) readWithin(want time.Duration, now time.Time) {
	if !within(c.readBy, now, want) {
		c.readBy = now.Add(want + want/8)
		_ = c.SetReadDeadline(c.readBy) // fails on a closed connection only, as the read will
	}
}

func (c *Conn) writeWithin(now time.Time) {
	if stall := c.pool.options.Stall; !within(c.writeBy, now, stall) {
		c.writeBy = now.Add(stall + stall/8)
		_ = c.SetWriteDeadline(c.writeBy)
	}
}

// AwaitHead gives the reads that follow the time that the head of an answer may take, from now on. It moves the connection's
// deadline only when it has to, so that a wait lasts between Options.Header and an eighth more.
func (c *Conn) AwaitHead(now time.Time) { c.readWithin(c.pool.options.Header, now) }

// continueTime is how long an upstream that was asked whether it wants a body may take to say so.
const continueTime = time.Second

// AwaitContinue gives the reads that follow the time in which an upstream says whether it wants the body of a request with
// Expect: 100-continue: a second. After a time-out the connection can be used on.
func (c *Conn) AwaitContinue(now time.Time) { c.readWithin(continueTime, now) }

// AwaitBody gives the next reads Options.Stall, likewise; AwaitStream as long as they take.
func (c *Conn) AwaitBody(now time.Time) { c.readWithin(c.pool.options.Stall, now) }

// AwaitStream lets the reads that follow wait for ever.
func (c *Conn) AwaitStream() {
	if !c.readBy.IsZero() {
		c.readBy = time.Time{}
		_ = c.SetReadDeadline(c.readBy)
	}
}

// maxPiece is the most that one deadline covers.
const maxPiece = 64 << 10

// Write writes with a deadline of Options.Stall, an eighth more at most, for each 64 KiB.
func (c *Conn) Write(p []byte) (n int, err error) {
	for {
		if c.wrote { // the first write comes at once, and Take has seen to its deadline: that saves reading the clock
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

// Close breaks the connection off, so that whoever reads or writes sees an end at once; any goroutine may. Keep or Drop is still
// to follow.
func (c *Conn) Close() error {
	c.closed.Store(true)
	return c.plain.Close()
}

// CloseWrite closes the sending half where the connection has halves, as TCP and TLS do.
func (c *Conn) CloseWrite() error {
	return closeWrite(c.Conn)
}

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Answered tells that the head of an answer is there (an interim one will do), so that the address is well. It is for exchanges
// that may last, or end with Drop; Keep says it too.
func (c *Conn) Answered() { c.pool.answered(&c.turn) }

// Keep returns a connection whose exchange is complete, both ways, for the next one. The address is well. Where more is buffered
// than belonged to the exchange, where enough are kept, and where the pool is closed, the connection is closed instead.
func (c *Conn) Keep(now time.Time) {
	p, a := c.pool, c.turn.at
	c.since = now
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
	p.tellBack(a, back)
	if !good {
		_ = c.Conn.Close()
	}
}

// Drop closes a connection that cannot be used again. failure says what went wrong on the upstream's side before an answer's
// head was there, which counts against the address; nil: nothing (the client went away, the upstream said close).
func (c *Conn) Drop(failure error) {
	c.pool.mu.Lock()
	mine := c.mine
	c.mine = false
	c.pool.mu.Unlock()
	if !mine {
		return
	}
	_ = c.plain.Close() // without TLS's goodbye, for which a peer that does not read would be waited for
	if errors.Is(failure, net.ErrClosed) {
		failure = nil // nobody but us closes it so
	}
	c.pool.end(c.turn, failure)
}

// quiet reports whether a kept connection is as it was left: the other side has neither closed it nor sent anything. Where that
// cannot be seen it says so too.
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
	// What TLS has read from the socket already shows in a read that must not wait.
	_ = c.SetReadDeadline(time.Unix(1, 0))
	var one [1]byte
	_, err := c.Conn.Read(one[:])
	_ = c.SetReadDeadline(c.readBy) // as it was
	return errors.Is(err, os.ErrDeadlineExceeded)
}
