package poller

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Conn is a connection that Take has taken. Any goroutine may call any method at any time; of several that read, or that write,
// one does at a time.
type Conn struct {
	poller        *poller
	fd            int
	users         atomic.Uint32 // who may be using fd: a count, and the two bits below
	local, remote net.Addr

	reads, writes side

	mu    sync.Mutex // of what follows, and of the sides' deadlines
	timer *time.Timer
	fires time.Duration // when timer does, after began; 0: it does not
}

const (
	closing = 1 << 30 // Close was called
	closed  = 1 << 31 // fd is closed
)

// A side is one direction of a connection.
type side struct {
	mu    sync.Mutex // of who reads, or writes
	state atomic.Uint32
	late  atomic.Bool   // the deadline has passed
	wake  chan bool     // has room for one: true, something happened; false, see why not. Made by the first to wait
	by    time.Duration // the deadline, after began; 0: none
}

// The states of a side. Who moves one from waiting to quiet sends to wake, once; who has moved it to waiting receives from it, once, or
// has moved it back.
const (
	quiet   uint32 = iota
	ready          // something happened, and nobody has looked since
	waiting        // somebody waits for that
)

// began is when this process's deadlines count from.
var began = time.Now()

// note says that something happened. Where it is true the caller is to send to wake.
func (s *side) note() bool {
	for {
		switch s.state.Load() {
		case ready:
			return false
		case waiting:
			if s.state.CompareAndSwap(waiting, quiet) {
				return true
			}
		default:
			if s.state.CompareAndSwap(quiet, ready) {
				return false
			}
		}
	}
}

// rouse has who waits look again.
func (s *side) rouse() {
	if s.note() {
		s.wake <- false
	}
}

// begin makes the caller the one who uses a side of c; end must follow where it returns nil. From here on nothing that happens is
// missed; what happened before is to be seen by looking.
func (c *Conn) begin(s *side) error {
	if !c.enter() {
		return net.ErrClosed
	}
	s.mu.Lock()
	err := c.failure(s)
	if err != nil {
		c.end(s)
		return err
	}
	s.state.CompareAndSwap(ready, quiet)
	return nil
}

func (c *Conn) end(s *side) {
	s.mu.Unlock()
	_ = c.leave()
}

// wait waits until something happens, or has happened since begin or the last wait.
func (c *Conn) wait(s *side) error {
	if s.wake == nil {
		s.wake = make(chan bool, 1)
	}
	if !s.state.CompareAndSwap(quiet, waiting) {
		s.state.Store(quiet)
		return c.failure(s)
	}
	// Who closes, or sees a deadline pass, says so before looking for somebody to wake.
	if err := c.failure(s); err != nil && s.state.CompareAndSwap(waiting, quiet) {
		return err
	}
	if happened := <-s.wake; happened && !c.isClosing() {
		return nil // what came before the deadline is in time, however long it took to get a processor; the next wait is not
	}
	return c.failure(s)
}

// failure returns why nothing can be waited for.
func (c *Conn) failure(s *side) error {
	switch {
	case c.isClosing():
		return net.ErrClosed
	case s.late.Load():
		return os.ErrDeadlineExceeded
	}
	return nil
}

// isClosing reports whether Close was called.
func (c *Conn) isClosing() bool { return c.users.Load()&closing != 0 }

// enter keeps the descriptor open until leave. It is false where the connection was closed.
func (c *Conn) enter() bool {
	if c.users.Add(1)&closing == 0 {
		return true
	}
	_ = c.leave()
	return false
}

// leave closes the descriptor where the connection was closed and the caller is the last to use it.
func (c *Conn) leave() error {
	if c.users.Add(^uint32(0)) == closing && c.users.CompareAndSwap(closing, closing|closed) {
		return c.poller.drop(c)
	}
	return nil
}

// Close closes the connection. Who reads or writes fails with net.ErrClosed.
func (c *Conn) Close() error {
	for {
		n := c.users.Load()
		if n&closing != 0 {
			return c.failed("close", net.ErrClosed)
		}
		if c.users.CompareAndSwap(n, (n+1)|closing) {
			break
		}
	}
	c.mu.Lock()
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	c.reads.rouse()
	c.writes.rouse()
	if err := c.leave(); err != nil {
		return c.failed("close", err)
	}
	return nil
}

// Read is net.Conn's.
func (c *Conn) Read(p []byte) (int, error) {
	s := &c.reads
	if err := c.begin(s); err != nil {
		return 0, c.failed("read", err)
	}
	defer c.end(s)
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, err := syscall.Read(c.fd, p)
		switch err {
		case nil:
			if n == 0 {
				return 0, io.EOF
			}
			return n, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			if err := c.wait(s); err != nil {
				return 0, c.failed("read", err)
			}
		default:
			return 0, c.failed("read", os.NewSyscallError("read", err))
		}
	}
}

// Write is net.Conn's: it writes all of p, or fails.
func (c *Conn) Write(p []byte) (int, error) {
	s := &c.writes
	if err := c.begin(s); err != nil {
		return 0, c.failed("write", err)
	}
	defer c.end(s)
	for written := 0; ; { // once also for nothing, which tells what is wrong
		n, err := syscall.Write(c.fd, p[written:])
		if n > 0 {
			written += n
		}
		switch {
		case written == len(p) && err == nil:
			return written, nil
		case err == nil, err == syscall.EINTR:
		case err == syscall.EAGAIN:
			if err := c.wait(s); err != nil {
				return written, c.failed("write", err)
			}
		default:
			return written, c.failed("write", os.NewSyscallError("write", err))
		}
	}
}

// CloseWrite closes the sending half: the other side reads an end.
func (c *Conn) CloseWrite() error {
	if !c.enter() {
		return c.failed("close", net.ErrClosed)
	}
	defer func() { _ = c.leave() }()
	if err := syscall.Shutdown(c.fd, syscall.SHUT_WR); err != nil {
		return c.failed("close", os.NewSyscallError("shutdown", err))
	}
	return nil
}

// LocalAddr returns this side's address.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the other side's address.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// failed says in package net's words what failed.
func (c *Conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: err}
}

// SyscallConn returns what reaches the socket.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return (*rawConn)(c), nil }

// A rawConn is a Conn's syscall.RawConn.
type rawConn Conn

// Control calls f with the descriptor.
func (r *rawConn) Control(f func(fd uintptr)) error {
	c := (*Conn)(r)
	if !c.enter() {
		return c.failed("raw-control", net.ErrClosed)
	}
	defer func() { _ = c.leave() }()
	f(uintptr(c.fd))
	return nil
}

// Read calls f until it returns true, and waits for something to read after each time that it does not.
func (r *rawConn) Read(f func(fd uintptr) bool) error {
	return (*Conn)(r).do(&r.reads, "raw-read", f)
}

// Write calls f until it returns true, and waits for room to write after each time that it does not.
func (r *rawConn) Write(f func(fd uintptr) bool) error {
	return (*Conn)(r).do(&r.writes, "raw-write", f)
}

func (c *Conn) do(s *side, op string, f func(fd uintptr) bool) error {
	if err := c.begin(s); err != nil {
		return c.failed(op, err)
	}
	defer c.end(s)
	for !f(uintptr(c.fd)) {
		if err := c.wait(s); err != nil {
			return c.failed(op, err)
		}
	}
	return nil
}
