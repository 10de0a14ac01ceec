package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

// A link is a connection between two processes that keeps messages apart (SOCK_SEQPACKET). One
// goroutine at a time may use it, except interrupt and close.
type link struct {
	conn        *net.UnixConn
	interrupted atomic.Bool
	room        []byte // for what is received
}

const (
	// maxPart bounds what is sent at once. It is below what the kernel takes.
	maxPart = 64 << 10
	// maxMessage bounds a message, in bytes.
	maxMessage = 1 << 30
)

func newLink(c *net.UnixConn) *link { return &link{conn: c, room: make([]byte, maxPart)} }

// send sends a message, which is an object, as JSON. One that is too long for one part is sent in
// several, and its length before them.
func (l *link) send(message any) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(b) > maxPart {
		if _, err := l.conn.Write(strconv.AppendInt(nil, int64(len(b)), 10)); err != nil {
			return err
		}
	}
	for len(b) > 0 {
		n := min(len(b), maxPart)
		if _, err := l.conn.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// receive receives a message. The error is os.ErrDeadlineExceeded after interrupt, and then no
// message is lost.
func (l *link) receive(message any) error {
	if l.interrupted.Load() {
		return os.ErrDeadlineExceeded
	}
	b, err := l.readPart()
	if err != nil {
		return err
	}
	if b[0] != '{' {
		if b, err = l.readParts(string(b)); err != nil {
			return err
		}
	}
	return json.Unmarshal(b, message)
}

// readParts returns a message of the given length.
func (l *link) readParts(length string) ([]byte, error) {
	size, err := strconv.Atoi(length)
	if err != nil || size < 0 || size > maxMessage {
		return nil, fmt.Errorf("a message of %.20q bytes: at most %d are allowed", length, maxMessage)
	}
	var all []byte
	for late := false; len(all) < size; {
		b, err := l.readPart()
		if errors.Is(err, os.ErrDeadlineExceeded) && l.interrupted.Load() && !late {
			late = true // the rest is on its way
			err = l.conn.SetReadDeadline(time.Now().Add(maxWait))
		}
		if err != nil {
			return nil, err
		}
		all = append(all, b...)
	}
	return all, nil
}

// readPart returns a part that carries no descriptors. The bytes are those of read.
func (l *link) readPart() ([]byte, error) {
	b, files, err := l.read()
	if len(files) > 0 {
		closeAll(files)
		err = fmt.Errorf("a message with %d descriptors, expected none", len(files))
	}
	return b, err
}

// read returns a part and the descriptors that it carries. The bytes, at least one, are valid until
// the next call. After an error there are neither.
func (l *link) read() (b []byte, files []*os.File, err error) {
	var rights [256]byte
	n, m, _, _, err := l.conn.ReadMsgUnix(l.room, rights[:])
	if err != nil {
		return nil, nil, err
	}
	if files, err = filesOf(rights[:m]); err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		closeAll(files)
		return nil, nil, err
	}
	return l.room[:n], files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// bound bounds what is sent and received from now on.
func (l *link) bound(d time.Duration) error { return l.conn.SetDeadline(time.Now().Add(d)) }

// unbound takes bound and interrupt back.
func (l *link) unbound() error {
	l.interrupted.Store(false)
	return l.conn.SetDeadline(time.Time{})
}

// interrupt ends a receive that waits for a message, and those that follow.
func (l *link) interrupt() {
	l.interrupted.Store(true)
	_ = l.conn.SetReadDeadline(time.Unix(1, 0))
}

func (l *link) close() { _ = l.conn.Close() }

// isGone reports whether an error means that the other process has closed its end, or has ended.
func isGone(err error) bool { return errors.Is(err, io.EOF) || isReset(err) }
