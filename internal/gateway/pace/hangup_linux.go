package pace

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// awaitHangup waits until the other side has ended the connection, or its half of it, whatever is still to be read; an error says that
// nothing can be said of that: a deadline has passed, most often.
func awaitHangup(c net.Conn) error {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return syscall.ENOTSUP
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(isHungUp)
}

// hasHungUp reports whether the other side has ended the connection, or its half of it. It does not wait.
func hasHungUp(c net.Conn) (ended bool) {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) { ended = isHungUp(fd) })
	return ended && err == nil
}

func isHungUp(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 // also for what nobody need ask for: an error, the end of both halves
}
