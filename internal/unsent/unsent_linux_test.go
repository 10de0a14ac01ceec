package unsent

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair returns both ends of a connection.
func pair(t *testing.T) (writer, reader *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); a.Close() })
	return c.(*net.TCPConn), a.(*net.TCPConn)
}

func TestTheBoundIsSet(t *testing.T) {
	writer, _ := pair(t)
	Limit(writer, 4096)
	raw, err := writer.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := raw.Control(func(fd uintptr) { n, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT) }); err != nil || n != 4096 {
		t.Errorf("the bound is %d, %v", n, err)
	}
}

// What a reader leaves in its window's way is unacknowledged; a closed socket has nothing.
func TestBytesBeyondTheWindowAreUnacknowledged(t *testing.T) {
	writer, _ := pair(t)
	if n := Unacknowledged(writer); n != 0 {
		t.Errorf("%d bytes before the first write", n)
	}
	if err := writer.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 64<<10); ; { // until the buffers of both sides are full
		if _, err := writer.Write(block); err != nil {
			break
		}
	}
	if n := Unacknowledged(writer); n == 0 {
		t.Error("the reader has read nothing, and everything is acknowledged")
	}
	writer.Close()
	if n := Unacknowledged(writer); n != 0 {
		t.Errorf("%d bytes of a closed socket", n)
	}
}
