//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package upstream

import "syscall"

// isQuiet reports whether nothing has come in on a socket, not even its end. It does not wait.
func isQuiet(fd uintptr) bool {
	var one [1]byte
	for {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if err != syscall.EINTR {
			return err == syscall.EAGAIN
		}
	}
}
