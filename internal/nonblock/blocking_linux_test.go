//go:build (amd64 || arm64 || riscv64) && !race

package nonblock

import (
	"errors"
	"syscall"
	"testing"
)

// A process to which a socket was passed may have changed its mode, which all its descriptors
// share.
func TestTheModeOfTheSocketDoesNotMatter(t *testing.T) {
	near, far := pair(t)
	for _, fd := range []int{near, far} {
		if err := syscall.SetNonblock(fd, false); err != nil {
			t.Fatal(err)
		}
	}
	var p [1]byte
	if _, err := Read(near, p[:]); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("read: %v; want EAGAIN", err)
	}
	if _, err := Peek(near, p[:]); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("peek: %v; want EAGAIN", err)
	}
	room := make([]byte, 1<<16)
	var err error
	for i := 0; err == nil && i < 1<<14; i++ {
		_, err = Write(far, room)
	}
	if !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("write to a full socket: %v; want EAGAIN", err)
	}
}
