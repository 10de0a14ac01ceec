//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package upstream

import (
	"syscall"

	"github.com/weirlimit/weir/internal/nonblock"
)

// isQuiet reports whether nothing has come in on a socket, not even its end. It does not wait.
func isQuiet(fd uintptr) bool {
	var one [1]byte
	for {
		_, err := nonblock.Peek(int(fd), one[:])
		if err != syscall.EINTR {
			return err == syscall.EAGAIN
		}
	}
}
