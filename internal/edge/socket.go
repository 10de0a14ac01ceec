package edge

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/weirlimit/weir/internal/cli"
)

// SocketPeer is the address that the peers of a Unix socket stand for. They have none of their own,
// and are on this machine.
var SocketPeer = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// listenSocket listens on a Unix socket. The socket of a process that has ended is replaced; one at
// which something listens is not, nor is another file. The umask decides who may connect. The
// socket is removed when the listener is closed.
func listenSocket(path string) (socketListener, error) {
	if err := removeStale(path); err != nil {
		return socketListener{}, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		hint := "is there the directory, and may this user write to it?"
		if errors.Is(err, syscall.EADDRINUSE) {
			hint = inUseHint
		}
		return socketListener{}, cli.Fail(fmt.Errorf("listen on unix:%s: %w", path, cause(err)), hint)
	}
	return socketListener{l}, nil
}

const inUseHint = "is another server running? give each server a socket of its own"

// maxSocketDial bounds the wait for a server that holds a socket to accept.
const maxSocketDial = 2 * time.Second

// removeStale removes the socket that a process left behind. It returns an error if the path cannot
// be listened on.
func removeStale(path string) error {
	found, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cli.Fail(fmt.Errorf("listen on unix:%s: %w", path, err), "may this user read the directory?")
	}
	if found.Mode().Type() != fs.ModeSocket {
		return cli.Fail(fmt.Errorf("listen on unix:%s: there is a file that is not a socket", path), "give a path at which there is nothing")
	}
	c, err := net.DialTimeout("unix", path, maxSocketDial)
	if err == nil {
		_ = c.Close()
	}
	// a full queue, or no permission, is a living server's
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return cli.Fail(fmt.Errorf("listen on unix:%s: another process listens on it", path), inUseHint)
	}
	if now, err := os.Lstat(path); err != nil || !os.SameFile(found, now) {
		return nil // another server was faster: to listen fails
	}
	if err := os.Remove(path); err != nil {
		return cli.Fail(fmt.Errorf("remove the socket that an ended process has left at %s: %w", path, err), "may this user write to the directory?")
	}
	return nil
}

// A socketListener is a listener of a Unix socket.
type socketListener struct{ net.Listener }

// Accept is net.Listener's.
func (l socketListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if conn, ok := c.(*net.UnixConn); ok {
		return &socketConn{conn}, err
	}
	return c, err
}

// A socketConn is a connection of a Unix socket, whose peer stands for SocketPeer.
type socketConn struct{ *net.UnixConn }

// RemoteAddr is net.Conn's.
func (*socketConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(SocketPeer, 0))
}
