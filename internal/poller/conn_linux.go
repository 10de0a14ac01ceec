package poller

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirlimit/weir/internal/nonblock"
)

// A Conn is a connection that was taken by Take. Its methods may be called concurrently. Concurrent
// reads run one at a time, and so do concurrent writes.
type Conn struct {
	poller        *poller
	fd            int
	users         atomic.Uint32 // number of users of fd, and the two bits below
	ended         atomic.Bool   // the peer has ended its half, or the connection has failed
	reports       atomic.Uint32 // how often its poller has reported it readable
	local, remote net.Addr

	reads, writes side

	mu       sync.Mutex // guards the fields below and the deadlines of both sides
	timer    *time.Timer
	fireTime time.Duration // when timer fires, since epoch; 0 if it is stopped
}

const (
	closing = 1 << 30 // Close was called
	closed  = 1 << 31 // fd is closed
)

// A side is one direction of a connection.
type side struct {
	mu      sync.Mutex // held by the reader, or the writer
	state   atomic.Uint32
	expired atomic.Bool // the deadline has passed
	// buffers one value: true if the socket is ready, false to check for failure; made by the first
	// wait
	wake     chan bool
	parked   func()        // is to be called in place of a value for wake; nil: a goroutine waits
	deadline time.Duration // since epoch; 0 if there is none

	task    *Task // whose goroutine alone may wait; nil: any may
	drained bool  // the last read took all that had come, so the next one would have to wait
}

// The states of a side. Whoever changes it from waiting to idle calls rouse once. The goroutine
// that changed it to waiting either receives the value of that, or has parked, or changes the state
// back itself.
const (
	idle    uint32 = iota
	ready          // the socket became ready, and no read or write was tried since
	waiting        // a goroutine waits for that
)

// epoch is the instant from which deadlines are counted.
var epoch = time.Now()

// signal records that the socket became ready. If it returns true the caller must call rouse.
func (s *side) signal() bool {
	for {
		switch s.state.Load() {
		case ready:
			return false
		case waiting:
			if s.state.CompareAndSwap(waiting, idle) {
				return true
			}
		default:
			if s.state.CompareAndSwap(idle, ready) {
				return false
			}
		}
	}
}

// rouse wakes the goroutine that waits, or starts one for a connection that is parked. happened is
// true if the socket is ready, false to check for failure.
func (s *side) rouse(happened bool) {
	if f := s.parked; f != nil {
		s.parked = nil
		go f()
		return
	}
	if s.task != nil {
		go s.task.wake(happened, nil)
		return
	}
	s.wake <- happened
}

// recheck wakes a waiting goroutine so that it checks for failure.
func (s *side) recheck() {
	if s.signal() {
		s.rouse(false)
	}
}

// begin locks a side of c; if it returns nil, end must follow. Readiness that is signalled from
// here on is not missed. For readiness before that the caller must try to read or write.
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
	if s.state.Load() == ready { // only the holder of the lock changes it from there
		s.state.Store(idle)
		s.drained = false
	}
	return nil
}

func (c *Conn) end(s *side) {
	s.mu.Unlock()
	_ = c.leave()
}

// wait waits until the socket becomes ready, or returns at once if it has since begin or the last
// wait.
func (c *Conn) wait(s *side) error {
	s.drained = false
	if s.wake == nil && s.task == nil {
		s.wake = make(chan bool, 1)
	}
	if !s.state.CompareAndSwap(idle, waiting) {
		s.state.Store(idle)
		return c.failure(s)
	}
	// Close and checkDeadlines record the failure before they look for a goroutine to wake.
	if err := c.failure(s); err != nil && s.state.CompareAndSwap(waiting, idle) {
		return err
	}
	var happened bool
	if s.task != nil {
		happened = s.task.wait()
	} else {
		happened = <-s.wake
	}
	if happened && !c.isClosing() {
		return nil // ready before the deadline, even if the deadline has passed by now
	}
	return c.failure(s)
}

// Below returns the connection that Take has returned, which is c or what c is a layer over; nil if
// there is none.
func Below(c net.Conn) *Conn {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	taken, _ := raw.(*rawConn)
	return (*Conn)(taken)
}

// Attach makes reads and writes wait as t does: only t's goroutine may use c until another call.
// Nil ends that. It must not be called during a read or a write. It does nothing if c is nil.
func (c *Conn) Attach(t *Task) {
	if c != nil {
		c.reads.task, c.writes.task = t, t
	}
}

// Mark returns the mark of this moment.
func (c *Conn) Mark() Mark {
	if c == nil {
		return Mark{}
	}
	return Mark{reports: c.reports.Load(), look: c.poller.began.Load()}
}

// QuietSince reports whether the poller has looked after m, and has reported nothing since: neither
// data nor an end. If a read that began after m took less than it had room for, nothing was left to
// be read when the poller looked. False means that it is not known; so it is for a nil Conn.
func (c *Conn) QuietSince(m Mark) bool {
	return c != nil && c.poller.done.Load() > m.look && c.reports.Load() == m.reports && !c.ended.Load()
}

// park has f called in a goroutine of its own, once, when a read need not wait any more: something
// has come, the read deadline has passed, or the connection was closed. It returns false, and f is
// not called, if that is so already. Until f is called, the connection must not be read: it is a
// wait without a goroutine, and without what the next wait can make anew.
func (c *Conn) park(f func()) bool {
	s := &c.reads
	if !c.enter() {
		return false
	}
	s.mu.Lock()
	defer c.end(s)
	s.parked, s.wake, s.drained = f, nil, false // what wakes it is to be read
	if !s.state.CompareAndSwap(idle, waiting) {
		s.parked = nil
		return false
	}
	// as in wait
	if c.failure(s) != nil && s.state.CompareAndSwap(waiting, idle) {
		s.parked = nil
		return false
	}
	return true
}

// failure returns the error of a closed connection or a passed deadline, or nil.
func (c *Conn) failure(s *side) error {
	switch {
	case c.isClosing():
		return net.ErrClosed
	case s.expired.Load():
		return os.ErrDeadlineExceeded
	}
	return nil
}

// isClosing reports whether Close was called.
func (c *Conn) isClosing() bool { return c.users.Load()&closing != 0 }

// enter keeps the descriptor open until leave. It returns false if the connection is closed.
func (c *Conn) enter() bool {
	if c.users.Add(1)&closing == 0 {
		return true
	}
	_ = c.leave()
	return false
}

// leave closes the descriptor if the connection is closed and the caller is its last user.
func (c *Conn) leave() error {
	if c.users.Add(^uint32(0)) == closing && c.users.CompareAndSwap(closing, closing|closed) {
		return c.poller.drop(c)
	}
	return nil
}

// Close closes the connection. Reads and writes under way return net.ErrClosed.
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
	c.reads.recheck()
	c.writes.recheck()
	if err := c.leave(); err != nil {
		return c.failed("close", err)
	}
	return nil
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	s := &c.reads
	if err := c.begin(s); err != nil {
		return 0, c.failed("read", err)
	}
	defer c.end(s)
	if len(p) == 0 {
		return 0, nil
	}
	// After a read that took all there was, the poller reports what comes next, so there is no need
	// to try. After the peer's end there is nothing more to report. (A goroutine of its own tries:
	// if more has come meanwhile, it saves a wait.)
	if s.drained && s.task != nil && !c.ended.Load() {
		if err := c.wait(s); err != nil {
			return 0, c.failed("read", err)
		}
	}
	for {
		n, err := nonblock.Read(c.fd, p)
		switch err {
		case nil:
			if n == 0 {
				return 0, io.EOF
			}
			s.drained = n < len(p)
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

// Write implements net.Conn. It writes all of p or returns an error.
func (c *Conn) Write(p []byte) (int, error) {
	s := &c.writes
	if err := c.begin(s); err != nil {
		return 0, c.failed("write", err)
	}
	defer c.end(s)
	for written := 0; ; { // an empty p is written too, to report a broken connection
		n, err := nonblock.Write(c.fd, p[written:])
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

// CloseWrite closes the sending half, so that the peer reads EOF.
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

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// failed wraps an error as package net does.
func (c *Conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: err}
}

// SyscallConn implements syscall.Conn.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return (*rawConn)(c), nil }

// A rawConn is the syscall.RawConn of a Conn.
type rawConn Conn

// Control implements syscall.RawConn.
func (r *rawConn) Control(f func(fd uintptr)) error {
	c := (*Conn)(r)
	if !c.enter() {
		return c.failed("raw-control", net.ErrClosed)
	}
	defer func() { _ = c.leave() }()
	f(uintptr(c.fd))
	return nil
}

// Read implements syscall.RawConn: it calls f whenever the socket is readable, until f returns
// true.
func (r *rawConn) Read(f func(fd uintptr) bool) error {
	return (*Conn)(r).do(&r.reads, "raw-read", f)
}

// Write implements syscall.RawConn: it calls f whenever the socket is writable, until f returns
// true.
func (r *rawConn) Write(f func(fd uintptr) bool) error {
	return (*Conn)(r).do(&r.writes, "raw-write", f)
}

// Park has f called in a goroutine of its own, once, when a read would not wait: something has
// come, the read deadline has passed, or the connection was closed. It returns false, and f is not
// called, if that may be so already. Until f is called, the connection must not be read. So a
// connection can wait without a goroutine.
func (r *rawConn) Park(f func()) bool { return (*Conn)(r).park(f) }

func (c *Conn) do(s *side, op string, f func(fd uintptr) bool) error {
	if err := c.begin(s); err != nil {
		return c.failed(op, err)
	}
	defer c.end(s)
	s.drained = false
	for !f(uintptr(c.fd)) {
		if err := c.wait(s); err != nil {
			return c.failed(op, err)
		}
	}
	return nil
}
