package pace

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// unacknowledged returns how many bytes that a socket took are not acknowledged by the other side;
// 0 if that is not known.
func unacknowledged(socket syscall.Conn) (n int64) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if queued, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			n = int64(queued)
		}
	})
	return n
}
