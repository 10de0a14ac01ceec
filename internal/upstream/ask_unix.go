//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package upstream

import (
	"io"
	"net"
	"os"
	"syscall"

	"github.com/weirlimit/weir/internal/nonblock"
	"github.com/weirlimit/weir/internal/poller"
)

// newStep returns the step of c's inquiries. It is made once, so that asking allocates nothing.
func (c *Conn) newStep() func(fd uintptr) bool {
	k := &c.ask
	return func(fd uintptr) (done bool) {
		if k.asked {
			return k.receive(c.socket, int(fd))
		}
		k.asked = true
		if c.turn.reused && !(k.fresh && k.whole && c.socket.QuietSince(k.mark)) && !isQuiet(fd) {
			k.err = ErrStale
			return true
		}
		if k.send(int(fd)) {
			return true
		}
		// On a kept connection the answer has not come yet, and the poller will report it: to look
		// would cost as much as a wait. On a new one the other side may have sent something before.
		// The poller has reported that already, and it was not read.
		return !c.turn.reused && k.receive(c.socket, int(fd))
	}
}

// send writes as much as the socket takes. It is done if that was not all, or failed.
func (k *inquiry) send(fd int) (done bool) {
	for {
		n, err := nonblock.Write(fd, k.request)
		switch err {
		case nil:
			k.sent = n
			return n < len(k.request)
		case syscall.EINTR:
		case syscall.EAGAIN:
			return true
		default:
			k.failed("write", err)
			return true
		}
	}
}

// receive reads the beginning of the answer.
func (k *inquiry) receive(socket *poller.Conn, fd int) (done bool) {
	k.mark = socket.Mark()
	for {
		n, err := nonblock.Read(fd, k.into)
		switch err {
		case nil:
			k.read, k.whole = n, n < len(k.into)
			if n == 0 {
				k.err = io.EOF
			}
			return true
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			k.failed("read", err)
			return true
		}
	}
}

// failed keeps the socket's error as one of package net.
func (k *inquiry) failed(op string, err error) {
	k.err = &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(op, err)}
}
