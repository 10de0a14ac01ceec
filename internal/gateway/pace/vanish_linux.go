package pace

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// How long a peer of a tunnel may be unreachable, such as a machine that has lost its network.
const (
	probeAfter  = 15 * time.Second // nothing came for so long; and between two probes
	vanishAfter = 75 * time.Second // nothing was acknowledged for so long
)

// EndVanished has the kernel end a connection whose other side has vanished without closing it,
// also while something that was sent to it is not acknowledged. A kernel without such an option
// leaves the connection as it is.
func EndVanished(c net.Conn) {
	raw, err := rawConn(c)
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(probeAfter/time.Second))
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(probeAfter/time.Second))
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(vanishAfter/time.Millisecond))
	})
}
