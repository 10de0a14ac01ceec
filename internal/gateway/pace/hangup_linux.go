package pace

import (
	"net"

	"golang.org/x/sys/unix"
)

// AwaitHangup waits until the other side has ended the connection, or its half of it, whatever is
// still to be read. An error means that it cannot know: usually a deadline has passed, or there is
// no socket.
func AwaitHangup(c net.Conn) error {
	raw, err := rawConn(c)
	if err != nil {
		return err
	}
	return raw.Read(isHungUp)
}

// HasHungUp reports whether the other side has ended the connection, or its half of it. It does not
// wait.
func HasHungUp(c net.Conn) (ended bool) {
	raw, err := rawConn(c)
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) { ended = isHungUp(fd) })
	return ended && err == nil
}

func isHungUp(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p, 0)
	// also for an error and the end of both halves, which are always reported
	return err == nil && n > 0
}
