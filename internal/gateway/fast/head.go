package fast

import (
	"errors"
	"net"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/wire"
)

// next waits for the head of a request. The head is empty if none comes any more and there is
// nothing to answer: the connection has ended, drains, or speaks HTTP/2. The error is errParked if
// the wait goes on without this goroutine, which must not use the connection any more. now is when
// the last answer was complete, if there was one.
func (c *conn) next(now time.Time) (head string, err error) {
	if head := c.in.Head(); head != "" {
		c.asked = true
		return head, nil
	}
	if len(c.in.Buffered()) > 0 { // some of the head is there, and its time runs
		c.startWait(now, true)
		return c.readHead(c.fillMore)
	}
	c.startWait(now, false)
	return c.readHead(c.awaitFirst)
}

// fillMore reads more of a head.
func (c *conn) fillMore() (more bool, err error) { return true, c.in.Fill(c.engine.Limits.HeaderBytes) }

// readHead reads a head, and begins with fill.
func (c *conn) readHead(fill func() (more bool, err error)) (head string, err error) {
	begun, first := len(c.in.Buffered()) > 0, !c.asked
	more, err := fill()
	for ; more && err == nil; more, err = c.fillMore() {
		if first && c.engine.secure == nil {
			switch prefaceOf(c.in.Buffered()) {
			case wholePreface:
				c.hand(&begunConn{Conn: c.Conn, begin: append([]byte(nil), c.in.Buffered()...)})
				return "", nil
			case partOfPreface:
				begun = c.startHead(begun)
				continue
			}
		}
		if head := c.in.Head(); head != "" {
			c.fresh, c.asked = false, true
			return head, nil
		}
		if c.engine.secure == nil || c.fresh { // else helloConn has started it
			begun = c.startHead(begun)
		}
	}
	if err == errParked {
		return "", err
	}
	return "", refusalOf(err)
}

// startWait sets the deadline of the wait for a head, of which some may have come already.
func (c *conn) startWait(now time.Time, begun bool) {
	switch {
	case begun:
		c.moveDeadline(time.Now().Add(c.engine.Limits.Header))
	case !c.asked && c.engine.secure != nil: // the deadline is the handshake's
		c.moveDeadline(time.Now().Add(c.engine.Limits.Idle))
	case c.asked:
		c.allow(now, c.engine.Limits.Idle)
	}
	c.fresh = !begun
}

// startHead starts the time for a head whose first byte has come, unless it has begun. It returns
// true.
func (c *conn) startHead(begun bool) bool {
	if !begun {
		c.moveDeadline(time.Now().Add(c.engine.Limits.Header))
	}
	return true
}

// awaitFirst begins to wait for the first byte of a request. more is false if a drain has begun.
func (c *conn) awaitFirst() (more bool, err error) {
	c.phase.Store(phaseIdle)
	if c.engine.ending.Load() {
		return false, nil
	}
	if !c.asked && c.engine.secure == nil && c.paced != nil && c.paced.IsBare() && c.park() {
		return false, errParked
	}
	return c.awaitByte()
}

// awaitByte continues that wait.
func (c *conn) awaitByte() (more bool, err error) {
	if err = c.rested(); err == errParked {
		return false, err
	}
	if c.phase.CompareAndSwap(phaseIdle, phaseBusy) {
		return true, err
	}
	if err == nil { // the drain has a deadline end the wait, which must not end the request
		c.moveDeadline(time.Now().Add(c.engine.Limits.Header))
		return true, nil
	}
	wait := keptGrace
	if !c.asked {
		wait = freshGrace
	}
	return true, c.lookAgain(err, wait)
}

// How long a connection that a drain finds idle may still take to bring a request. A new connection
// has most likely been opened for one, and on a kept connection it may have come just now.
const (
	freshGrace = time.Second
	keptGrace  = time.Millisecond
)

// lookAgain waits again after a drain has ended a wait with err.
func (c *conn) lookAgain(err error, wait time.Duration) error {
	if !pace.IsTimeout(err) {
		return err
	}
	now := time.Now()
	c.moveDeadline(now.Add(wait))
	if err := c.in.Fill(c.engine.Limits.HeaderBytes); err != nil {
		return err
	}
	c.moveDeadline(now.Add(c.engine.Limits.Header))
	return nil
}

// refusalOf returns the refusal that a failed read of a head is; nil if the connection ended or
// failed.
func refusalOf(err error) error {
	if errors.Is(err, wire.ErrFull) {
		return wire.HeadTooLarge
	}
	return nil
}

// How much of HTTP/2's preface the first bytes of a connection are.
type share uint8

const (
	noPreface share = iota
	partOfPreface
	wholePreface
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

func prefaceOf(begin []byte) share {
	if len(begin) >= len(preface) {
		if string(begin[:len(preface)]) == preface {
			return wholePreface
		}
		return noPreface
	}
	if len(begin) > 0 && strings.HasPrefix(preface, string(begin)) {
		return partOfPreface
	}
	return noPreface
}

// hand gives the connection to the engine for HTTP/2.
func (c *conn) hand(as net.Conn) {
	_ = c.raw.SetReadDeadline(time.Time{})
	c.taken = true
	// in another goroutine: the stack of this one has grown in the handshake
	c.engine.serving.Go(func() { c.engine.http2(as) })
}

// A begunConn is a connection of which some bytes were read, and are to be read first.
type begunConn struct {
	net.Conn
	begin []byte
}

// NetConn returns the connection below.
func (c *begunConn) NetConn() net.Conn { return c.Conn }

// Read is net.Conn's.
func (c *begunConn) Read(p []byte) (int, error) {
	if len(c.begin) > 0 {
		n := copy(p, c.begin)
		c.begin = c.begin[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}
