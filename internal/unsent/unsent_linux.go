package unsent

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Limit bounds how many bytes the kernel takes of c's writes beyond what the other side's window
// admits. A kernel that does not know the option ignores it.
func Limit(c *net.TCPConn, bytes int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return // it is closed already
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes)
	})
}

// Unacknowledged returns how many bytes a socket has taken that the other side has not
// acknowledged; 0 if the kernel does not report it.
func Unacknowledged(socket syscall.Conn) (n int64) {
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
