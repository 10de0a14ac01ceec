package gateway

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A narrow listener bounds what the sockets of its connections hold, so that a server whose client
// reads nothing has to hold the rest itself, and counts what is read of them.
type narrow struct {
	net.Listener
	read *atomic.Int64
}

type narrowConn struct {
	socket
	read *atomic.Int64
}

// A socket is a connection of the poller or of package net.
type socket interface {
	net.Conn
	CloseWrite() error
	SyscallConn() (syscall.RawConn, error)
}

func (l narrow) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return narrowConn{c.(socket), l.read}, narrowed(c)
}

// narrowed bounds what the kernel holds for a connection.
func narrowed(c net.Conn) error {
	raw, err := c.(socket).SyscallConn()
	if err != nil {
		return err
	}
	var errs [2]error
	err = raw.Control(func(fd uintptr) {
		errs[0] = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, 32<<10)
		errs[1] = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 32<<10)
	})
	return errors.Join(err, errs[0], errs[1])
}

func (c narrowConn) Read(p []byte) (int, error) {
	n, err := c.socket.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// A client that asks for acknowledgements and does not read them is not read on, or ends. The
// server holds little for it.
func TestAcknowledgementsThatNobodyReadsAreBounded(t *testing.T) {
	const frames = 200_000 // the sockets hold a part of their acknowledgements
	for name, write := range map[string]func(*batch){
		"SETTINGS": func(b *batch) { _ = b.WriteSettings() },
		"PING":     func(b *batch) { _ = b.WritePing(false, [8]byte{}) },
		// each is answered by RST_STREAM
		"DATA of an ended stream": func(b *batch) { _ = b.WriteData(1, false, nil) },
	} {
		var read atomic.Int64
		e, _, _ := attacked(t, func(o *Options) {
			o.WrapListener = func(l net.Listener) net.Listener { return narrow{l, &read} }
			o.Limits.Stall, o.Limits.Take = 300*time.Millisecond, 300*time.Millisecond
		})
		before := e.warm()
		c := e.mustFrames(nil)
		c.get(1, "/v1/wp/x")
		c.answered(1)
		c.settled()
		if err := narrowed(c.Conn); err != nil {
			t.Fatal(err)
		}
		base := reachable()
		sent := make(chan int, 1)
		go func() {
			b, n := newBatch(), 0
			for ; n < frames; n += 100 {
				for range 100 {
					write(b)
				}
				if !b.send(c) {
					break
				}
			}
			sent <- n
		}()
		n, ended := stuck(sent, &read)
		if grown := reachable() - base; grown > 2<<20 {
			t.Errorf("%s: %d KiB are held", name, grown>>10)
		}
		if !ended && !e.byNetHTTP() { // net/http only stops reading
			n = within(t, patience, name+": a client that takes nothing is ended", sent)
		} else if !ended {
			c.Close()
			<-sent
		}
		// net/http acknowledges many SETTINGS by one.
		if n == frames && !(e.byNetHTTP() && name == "SETTINGS") {
			t.Errorf("%s: all %d frames are read, though nobody reads what they ask for", name, frames)
		}
		e.serves()
		c.Close()
		e.idles(before)
	}
}

// stuck waits until the writer has ended, or the server has read nothing for a while; the second is
// a guess, and if it is wrong, less was tested.
func stuck(sent <-chan int, read *atomic.Int64) (n int, ended bool) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	last := read.Load()
	for quiet := 0; quiet < 100; quiet++ {
		select {
		case n := <-sent:
			return n, true
		case <-tick.C:
		}
		if now := read.Load(); now != last {
			last, quiet = now, 0
		}
	}
	return 0, false
}
