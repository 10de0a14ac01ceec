package redisstore

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// dial connects the client to a server. Close cancels it.
func (s *Store) dial(ctx context.Context, address string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
	if d.Timeout != asideDial {
		s.noteTrouble() // commands would wait for the new connection
	}
	counts := d.Timeout == dialTimeout // the dialers of Sentinels, and of replicas, are others
	if counts {
		s.epoch.endOf(address)
		s.lookAtSlots()
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	check := func() error { return nil }
	if counts {
		if err := s.checkStale(ctx, address); err != nil {
			return nil, err
		}
		check = s.checkMaster(ctx, address)
	}
	connect := d.DialContext
	if s.options.Dial != nil {
		connect = s.options.Dial
	}
	c, err := connect(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if config != nil {
		if config.ServerName == "" {
			config = config.Clone()
			config.ServerName, _, _ = net.SplitHostPort(address)
		}
		secured := tls.Client(c, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			c.Close()
			return nil, notTLS(address, err)
		}
		c = secured
	}
	err = greet(ctx, c, address, config != nil)
	if err == nil {
		err = check()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	if !counts {
		return yieldingConn{c}, nil
	}
	w := &watchedConn{Conn: c, epoch: &s.epoch, live: &s.promoted.live, address: address, began: s.local()}
	if err := s.promoted.live.begin(w); err != nil { // before the machines are looked at
		c.Close()
		return nil, err
	}
	if l := s.link.Load(); l == nil || !l.cluster { // a cluster's slots get other owners: readSlots
		s.promoted.lookSoon()
	}
	s.epoch.answers(address)
	return yieldingConn{w}, nil
}

// notTLS explains a failed handshake.
func notTLS(address string, err error) error {
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &record):
		return fmt.Errorf("%w: %s does not use TLS: expected redis:// or redis-sentinel:// for it (%w)", ErrServer, address, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("connect by TLS to %s: no answer within %v, as from a server without TLS: should the URL begin with redis://? %w", address, dialTimeout, err)
	}
	return fmt.Errorf("connect by TLS to %s: %w", address, err)
}

// greetings are asked one after the other. A server that answers each line, and not each command,
// would pass the first one if its other answers came a moment later.
var greetings = []struct{ command, sent, want string }{
	{"PING", "*1\r\n$4\r\nPING\r\n", "+PONG\r\n"},
	{"ECHO", "*2\r\n$4\r\nECHO\r\n$4\r\nweir\r\n", "$4\r\nweir\r\n"},
}

// greet checks that a Redis answers. The client would take any bytes for replies, and one reply too
// many ends the process with a panic.
func greet(ctx context.Context, c net.Conn, address string, secured bool) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	for _, g := range greetings {
		if _, err := io.WriteString(c, g.sent); err != nil {
			return fmt.Errorf("greet %s: %w", address, err)
		}
		answer, err := readReply(c, g.want)
		if string(answer) == g.want {
			continue
		}
		if isErrorReply(answer) && !bytes.HasPrefix(answer, []byte("-DENIED")) {
			break // such as one that a password is missing, which the client sends next
		}
		return notRedis(address, g.command, answer, secured, err)
	}
	if !stop() {
		return ctx.Err()
	}
	return c.SetDeadline(time.Time{})
}

// notRedis explains what a server has answered to a command of greetings; err is what ended it.
func notRedis(address, command string, answer []byte, secured bool, err error) error {
	switch {
	// protected mode: the server closes the connection after it
	case bytes.HasPrefix(answer, []byte("-DENIED")):
		return fmt.Errorf("%w: %s", ErrDenied, bytes.TrimSpace(answer[1:]))
	case !secured && (bytes.HasPrefix(answer, []byte{0x15, 3}) || bytes.HasPrefix(answer, []byte{0x16, 3})):
		return fmt.Errorf("%w: %s uses TLS: expected rediss:// or rediss-sentinel:// for it", ErrServer, address)
	case len(answer) > 0:
		return fmt.Errorf("%w: %s is not a Redis: it answered %s with %q", ErrServer, address, command, answer)
	case !secured && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return fmt.Errorf("greet %s: it closed the connection at the first command, as a server with TLS does: should the URL begin with rediss://? %w", address, err)
	}
	return fmt.Errorf("greet %s: %w", address, err)
}

// isErrorReply reports whether b is one line of an error.
func isErrorReply(b []byte) bool {
	return bytes.HasPrefix(b, []byte("-")) && bytes.IndexByte(b, '\n') == len(b)-1
}

// readReply reads until it has want, one line of an error, or the beginning of anything else.
// Nothing follows the reply to one command, but a server can send an error before it has read the
// command.
func readReply(c net.Conn, want string) ([]byte, error) {
	const maxLine = 4096 // bytes of an error; the one of protected mode has about 1,000
	b := make([]byte, 0, maxLine)
	for len(b) < maxLine {
		n, err := c.Read(b[len(b):maxLine])
		b = b[:len(b)+n]
		if string(b) == want || isErrorReply(b) {
			return b, nil
		}
		partial := strings.HasPrefix(want, string(b)) || b[0] == '-' && bytes.IndexByte(b, '\n') < 0
		if err != nil || !partial {
			return b[:min(len(b), 40)], err
		}
	}
	return b[:40], nil
}

// A yieldingConn yields the processor before each write, so that goroutines that are about to send
// share the packet: under load a packet each costs both sides more than the decision. If nothing
// else is runnable the write happens at once.
type yieldingConn struct{ net.Conn }

func (c yieldingConn) Write(b []byte) (int, error) {
	runtime.Gosched()
	return c.Conn.Write(b)
}
