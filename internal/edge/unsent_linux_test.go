package edge

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTheKernelBuffersLittleOfAnAnswer(t *testing.T) {
	opened, err := openListeners("127.0.0.1:0", nil, new(parts))
	if err != nil {
		t.Fatal(err)
	}
	defer opened.close()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := plain.(*net.TCPListener).File()
	if err := plain.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	held, err := heldListeners([]string{publicSocket}, []*os.File{file})
	if err != nil {
		t.Fatal(err)
	}
	defer held.close()
	for name, l := range map[string]net.Listener{"opened": opened.public, "held": held.public} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
		raw, err := accepted.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		if err := raw.Control(func(fd uintptr) { n, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT) }); err != nil || n != maxUnsent {
			t.Errorf("a connection of the %s socket: %d bytes unsent, %v; want %d", name, n, err, maxUnsent)
		}
	}
}
