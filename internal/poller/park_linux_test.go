package poller

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"
)

// quiet returns a pair of which the near end has been read until a read had to wait.
func quiet(t *testing.T) (near *Conn, far net.Conn) {
	t.Helper()
	taken, far := pair(t)
	near = taken.(*Conn)
	read := make(chan error)
	go func() {
		_, err := near.Read(make([]byte, 1))
		read <- err
	}()
	for near.reads.state.Load() != waiting {
		runtime.Gosched()
	}
	_ = near.SetReadDeadline(time.Unix(1, 0))
	if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	_ = near.SetReadDeadline(time.Time{})
	return near, far
}

// A parked connection goes on once, at what would have ended a read: bytes, the other side's end, a
// deadline, or Close.
func TestAParkedConnectionGoesOnAsAReadWould(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(near, far net.Conn)
		want    error // of a read then
	}{
		"a byte":                 {func(_, far net.Conn) { _, _ = far.Write([]byte{1}) }, nil},
		"the end":                {func(_, far net.Conn) { _ = far.Close() }, io.EOF},
		"a deadline that comes":  {func(near, _ net.Conn) { _ = near.SetReadDeadline(time.Now().Add(time.Millisecond)) }, os.ErrDeadlineExceeded},
		"a deadline in the past": {func(near, _ net.Conn) { _ = near.SetReadDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
		"Close":                  {func(near, _ net.Conn) { _ = near.Close() }, net.ErrClosed},
		"a byte, and all the rest": {func(near, far net.Conn) {
			_, _ = far.Write([]byte{1})
			_ = far.Close()
			_ = near.SetWriteDeadline(time.Unix(1, 0))
		}, nil},
	} {
		near, far := quiet(t)
		for range 3 { // parked, woken, and parked again
			called := make(chan struct{}, 2)
			if !(*rawConn)(near).Park(func() { called <- struct{}{} }) {
				t.Fatalf("%s: it does not park, though nothing has come", name)
			}
			if _, err := far.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			<-called
			if n, err := near.Read(make([]byte, 2)); n != 1 || err != nil {
				t.Fatalf("%s: after a byte: %d, %v", name, n, err)
			}
		}
		called := make(chan struct{}, 2)
		if !(*rawConn)(near).Park(func() { called <- struct{}{} }) {
			t.Fatalf("%s: it does not park", name)
		}
		test.happens(near, far)
		<-called
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, test.want) {
			t.Errorf("%s: a read then: %v, want %v", name, err, test.want)
		}
		_ = near.Close()
		if len(called) > 0 {
			t.Errorf("%s: it goes on twice", name)
		}
	}
}

// A connection is not parked if something has come since it was read, if its deadline has passed,
// or if it is closed: its next read does not wait.
func TestAConnectionWithSomethingToReadIsNotParked(t *testing.T) {
	never := func() { t.Error("it goes on, though it was not parked") }
	near, far := quiet(t)
	if _, err := far.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	for near.reads.state.Load() != ready {
		runtime.Gosched()
	}
	if (*rawConn)(near).Park(never) {
		t.Error("parked, with a byte to read")
	}
	if n, err := near.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	near, _ = quiet(t)
	_ = near.SetReadDeadline(time.Unix(1, 0))
	if (*rawConn)(near).Park(never) {
		t.Error("parked, though the deadline has passed")
	}
	near, _ = quiet(t)
	_ = near.Close()
	if (*rawConn)(near).Park(never) {
		t.Error("parked, though closed")
	}
}

// The connections of one listener share their local address, which is right for each.
func TestTheConnectionsOfAListenerShareItsAddress(t *testing.T) {
	var locals []net.Addr
	for range 2 {
		plain, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close()
		for range 2 {
			far, err := net.Dial("tcp", plain.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
			near, err := Listen(plain).Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer near.Close()
			if near.LocalAddr().String() != plain.Addr().String() || near.RemoteAddr().String() != far.LocalAddr().String() {
				t.Errorf("from %v to %v, want from %v to %v", near.RemoteAddr(), near.LocalAddr(), far.LocalAddr(), plain.Addr())
			}
			locals = append(locals, near.LocalAddr())
		}
	}
	if locals[0] != locals[1] || locals[2] != locals[3] {
		t.Error("the connections of a listener have addresses of their own")
	}
}
