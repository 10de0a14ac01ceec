//go:build unix

package nonblock

import (
	"errors"
	"syscall"
	"testing"
)

// pair returns the two ends of a connection.
func pair(t *testing.T) (near, far int) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, fd := range fds {
			_ = syscall.Close(fd)
		}
	})
	for _, fd := range fds {
		if err := syscall.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
	}
	return fds[0], fds[1]
}

func TestEachCallReturnsAtOnce(t *testing.T) {
	near, far := pair(t)
	var p [4]byte
	if n, err := Read(near, p[:]); n > 0 || !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("read of nothing: %d, %v; want EAGAIN", n, err)
	}
	if n, err := Peek(near, p[:]); n > 0 || !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("peek at nothing: %d, %v; want EAGAIN", n, err)
	}
	if n, err := Write(far, []byte("abcdef")); n != 6 || err != nil {
		t.Fatalf("write: %d, %v", n, err)
	}
	for name, call := range map[string]func(int, []byte) (int, error){"Peek": Peek, "Peek, again": Peek} {
		if n, err := call(near, p[:1]); n != 1 || p[0] != 'a' || err != nil {
			t.Errorf("%s: %d, %q, %v; want the first byte", name, n, p[0], err)
		}
	}
	if n, err := Read(near, p[:]); string(p[:n]) != "abcd" || err != nil {
		t.Errorf("read: %q, %v", p[:n], err)
	}
	if n, err := Read(near, p[:]); string(p[:n]) != "ef" || err != nil {
		t.Errorf("the rest: %q, %v", p[:n], err)
	}
	room := make([]byte, 1<<20)
	written := 0
	for {
		n, err := Write(far, room)
		if errors.Is(err, syscall.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatalf("write until the socket takes no more: %v", err)
		}
		if written += n; written > 1<<30 {
			t.Fatal("the socket takes everything, or nothing is written")
		}
	}
}

func TestAnEndIsNoError(t *testing.T) {
	near, far := pair(t)
	if err := syscall.Shutdown(far, syscall.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	var p [1]byte
	if n, err := Read(near, p[:]); n != 0 || err != nil {
		t.Errorf("read at the end: %d, %v", n, err)
	}
	if n, err := Peek(near, p[:]); n != 0 || err != nil {
		t.Errorf("peek at the end: %d, %v", n, err)
	}
	if _, err := Write(near, nil); err != nil {
		t.Errorf("write nothing: %v", err)
	}
	if err := syscall.Shutdown(near, syscall.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(near, p[:]); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write after the end of one's own half: %v; want EPIPE", err)
	}
}
