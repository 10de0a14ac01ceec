package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A load sends requests on time, no matter what came back: if no connection has room, a request
// waits for one, and the wait counts. It is one loop, without goroutines.
type load struct {
	poll    *poll
	callers map[int32]*openCaller // by descriptor
	// Each caller is in room as often as it may send. The one that has waited longest is next.
	room ring[*openCaller]
}

// An openCaller is a caller with its connection.
type openCaller struct {
	caller
	socket *socket
	queued bool // something was sent, and not yet flushed
}

// openLoad connects to a server.
func openLoad(address string, how protocol) (*load, error) {
	p, err := newPoll()
	if err != nil {
		return nil, err
	}
	l := &load{poll: p, callers: map[int32]*openCaller{}, room: newRing[*openCaller](how.conns * how.streams)}
	if err := l.connect(address, how); err != nil {
		l.close()
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return l, nil
}

func (l *load) connect(address string, how protocol) error {
	config, err := clientTLS(how)
	if err != nil {
		return err
	}
	var all []*openCaller
	room := make([]byte, 16<<10)
	for range how.conns {
		s, err := dialSocket(address)
		if err != nil {
			return err
		}
		one := &openCaller{socket: s}
		l.callers[int32(s.fd)] = one // closed with the load from now on
		if one.caller, err = newCaller(s, config, how, room); err != nil {
			return err
		}
		if err := errors.Join(s.unblock(), l.poll.add(s.fd)); err != nil {
			return err
		}
		if err := one.flush(); err != nil {
			return err
		}
		all = append(all, one)
	}
	for range how.streams {
		for _, one := range all {
			l.room.push(one)
		}
	}
	return nil
}

// clientTLS returns nil if the load has no TLS.
func clientTLS(how protocol) (*tls.Config, error) {
	if !how.tls {
		return nil, nil
	}
	text, err := os.ReadFile(how.trust)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{ServerName: "api.example.com", RootCAs: x509.NewCertPool(), NextProtos: []string{"http/1.1"}}
	if how.http2 {
		config.NextProtos = []string{"h2"}
	}
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read %s: it has no certificate", how.trust)
	}
	return config, nil
}

// newCaller begins a connection: the handshake of TLS waits for its end. Callers of one load share
// the room that they read into.
func newCaller(s *socket, config *tls.Config, how protocol, room []byte) (caller, error) {
	var conn io.ReadWriter = s
	if config != nil {
		secure := tls.Client(s, config)
		if err := secure.Handshake(); err != nil {
			return nil, err
		}
		conn = secure
		if got := secure.ConnectionState().NegotiatedProtocol; how.http2 && got != "h2" {
			return nil, fmt.Errorf("the server speaks %q, want HTTP/2", got)
		}
	}
	if how.http2 {
		return newHTTP2Caller(conn, how.streams, room)
	}
	return newHTTP1Caller(conn), nil
}

func (l *load) close() {
	for _, c := range l.callers {
		// so that its port is free at once
		unix.SetsockoptLinger(c.socket.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		c.socket.Close()
	}
	unix.Close(l.poll.fd)
}

// patience is how long a load waits for the answers to what it has sent.
const patience = 10 * time.Second

// A trialRun is one trial of a load while it lasts. Its times are from its begin.
type trialRun struct {
	*load
	trial
	clock     int
	all, done int
	slow      int // of those that count
	enough    time.Duration
	begun     time.Time
	countFrom time.Duration // what was due before does not count
	roomFrom  time.Duration // from when on there was room
	looked    time.Duration // when the loop last looked for what has come
	cameFrom  time.Duration // what it reads now has come since then
	reading   *openCaller
	touched   []*openCaller // that have something to flush
}

// drive sends requests at a rate for some time, and waits for all answers. If enough is not zero,
// it begins with as many requests as are due in a quarter of that time, which do not count, and it
// stops when more than a hundredth of all that count took as long as enough. Then it also looks for
// answers and for what is due only once in a twentieth of enough: so it has several to read and to
// send each time. On a virtual machine the wake-ups would cost more than the requests.
func (l *load) drive(ctx context.Context, rate float64, length, enough time.Duration) (trial, error) {
	clock, err := startClock(max(enough/20, time.Duration(float64(time.Second)/rate)))
	if err != nil {
		return trial{}, err
	}
	defer unix.Close(clock)
	if enough == 0 {
		if err := l.poll.add(clock); err != nil {
			return trial{}, err
		}
	}
	counted := int(rate * length.Seconds())
	r := &trialRun{load: l, clock: clock, all: counted, enough: enough, begun: time.Now()}
	if enough > 0 {
		r.all += counted / 4
		r.countFrom = dueAt(counted/4, rate)
	}
	r.rate, r.took = rate, make([]time.Duration, 0, counted)
	for ctx.Err() == nil {
		if err := r.sendDue(); err != nil {
			return r.trial, fmt.Errorf("send: %w", err)
		}
		if r.done == r.sent && (r.stopped || r.sent == r.all) {
			break
		}
		if r.now() > r.countFrom+length+patience {
			return r.trial, fmt.Errorf("%d of %d requests were sent and %d answered after %v", r.sent, r.all, r.done, r.now())
		}
		if err := r.takeReady(); err != nil {
			return r.trial, err
		}
		r.stopped = r.stopped || enough > 0 && r.slow > counted/100
	}
	return r.trial, ctx.Err()
}

func (r *trialRun) now() time.Duration { return time.Since(r.begun) }

// sendDue sends what is due, as far as there is room.
func (r *trialRun) sendDue() error {
	for r.sent < r.all && r.room.len() > 0 && !r.stopped {
		due, now := dueAt(r.sent, r.rate), r.now()
		if now < due {
			break
		}
		c := r.room.pop()
		if err := c.send(due); err != nil {
			return err
		}
		if !c.queued {
			c.queued, r.touched = true, append(r.touched, c)
		}
		if due >= r.countFrom {
			r.delays.note(now - max(due, r.roomFrom))
		}
		r.sent++
	}
	for _, c := range r.touched {
		c.queued = false
		if err := c.flush(); err != nil {
			return err
		}
	}
	r.touched = r.touched[:0]
	return nil
}

// takeReady waits for what comes next, or for the clock, and reads what has come.
func (r *trialRun) takeReady() error {
	if r.enough > 0 {
		if err := awaitTick(r.clock); err != nil {
			return err
		}
		return r.readReady(r.looked)
	}
	ready, err := r.poll.look()
	from := r.looked
	if err == nil && len(ready) == 0 {
		ready, err = r.poll.wait()
		from = r.now()
	}
	if err != nil {
		return err
	}
	return r.read(ready, from)
}

// readReady reads what has come since a time.
func (r *trialRun) readReady(from time.Duration) error {
	for {
		ready, err := r.poll.look()
		if err != nil {
			return err
		}
		if err := r.read(ready, from); err != nil || len(ready) < len(r.poll.events) {
			return err
		}
	}
}

// read reads what the poll has found, which may have come since a time.
func (r *trialRun) read(ready []unix.EpollEvent, from time.Duration) error {
	r.looked, r.cameFrom = r.now(), from
	for _, e := range ready {
		if int(e.Fd) == r.clock {
			if err := awaitTick(r.clock); err != nil {
				return err
			}
			continue
		}
		r.reading = r.callers[e.Fd]
		r.reading.socket.ready = true
		if err := r.reading.receive(r.answered); err != nil {
			return err
		}
	}
	return nil
}

// answered notes an answer to a request of the caller that is read.
func (r *trialRun) answered(due time.Duration) {
	now := r.now()
	if r.room.len() == 0 {
		r.roomFrom = now
	}
	r.room.push(r.reading)
	r.done++
	if due < r.countFrom {
		return
	}
	r.took = append(r.took, now-due)
	r.delays.note(now - r.cameFrom)
	if now-due >= r.enough {
		r.slow++
	}
}

// startClock starts a clock that can be read at each interval, once for all that are over.
func startClock(interval time.Duration) (int, error) {
	clock, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
	if err != nil {
		return 0, err
	}
	tick := unix.NsecToTimespec(interval.Nanoseconds())
	if err := unix.TimerfdSettime(clock, 0, &unix.ItimerSpec{Interval: tick, Value: tick}, nil); err != nil {
		unix.Close(clock)
		return 0, err
	}
	return clock, nil
}

// awaitTick waits for the end of the clock's interval, if that is not over.
func awaitTick(clock int) error {
	for {
		var ticks [8]byte
		if _, err := unix.Read(clock, ticks[:]); err != unix.EINTR {
			return err
		}
	}
}

// A socket is a TCP connection that blocks until unblock is called. From then on it reads only what
// a poll has found.
type socket struct {
	fd        int
	unblocked bool
	ready     bool // the poll has found something, and it was not all read
}

// dialSocket connects to an IPv4 address. A read or write that takes longer than patience fails.
func dialSocket(address string) (*socket, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	wait := unix.NsecToTimeval(patience.Nanoseconds())
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait),
		unix.Connect(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}),
	)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &socket{fd: fd}, nil
}

func (s *socket) unblock() error {
	s.unblocked = true
	return unix.SetNonblock(s.fd, true)
}

func (s *socket) Read(b []byte) (int, error) {
	if s.unblocked && !s.ready {
		return 0, errNotReady
	}
	n, err := unix.Read(s.fd, b)
	switch {
	case err == unix.EAGAIN && s.unblocked:
		s.ready = false
		return 0, errNotReady
	case err != nil:
		return 0, fmt.Errorf("read: %w", err)
	case n == 0:
		return 0, io.EOF
	}
	s.ready = n == len(b) // fewer bytes were all there were
	return n, nil
}

// Write writes everything. Requests are small: that the kernel takes no more of them is an error.
func (s *socket) Write(b []byte) (int, error) {
	n, err := unix.Write(s.fd, b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return max(0, n), fmt.Errorf("write %d bytes: %w", len(b), err)
	}
	return n, nil
}

func (s *socket) Close() error { return unix.Close(s.fd) }

// What crypto/tls asks of a connection besides.
func (s *socket) LocalAddr() net.Addr              { return nil }
func (s *socket) RemoteAddr() net.Addr             { return nil }
func (s *socket) SetDeadline(time.Time) error      { return nil }
func (s *socket) SetReadDeadline(time.Time) error  { return nil }
func (s *socket) SetWriteDeadline(time.Time) error { return nil }
