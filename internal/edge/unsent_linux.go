package edge

import (
	"net"

	"golang.org/x/sys/unix"
)

// limitUnsent sets maxUnsent. A kernel that does not know it goes on as it is.
func limitUnsent(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return // it is closed already
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
	})
}
