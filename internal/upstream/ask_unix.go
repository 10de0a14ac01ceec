//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package upstream

import (
	"io"
	"net"
	"os"
	"syscall"
)

// newStep returns the step of c's inquiries. It is made once, so that asking allocates nothing.
func (c *Conn) newStep() func(fd uintptr) bool {
	k := &c.ask
	return func(fd uintptr) (done bool) {
		if k.asked {
			return k.receive(int(fd))
		}
		k.asked = true
		if c.turn.reused && !isQuiet(fd) {
			k.err = ErrStale
			return true
		}
		if k.send(int(fd)) {
			return true
		}
		// On a kept connection the answer is not there yet, and that anything comes will be told: to look would cost as much as a wait.
		// On a fresh one the other side may have spoken before, of which the poller has told already, and nobody has looked.
		return !c.turn.reused && k.receive(int(fd))
	}
}

// send writes as much as the socket takes. It is done where that was not all, or failed.
func (k *inquiry) send(fd int) (done bool) {
	for {
		n, err := syscall.Write(fd, k.request)
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
func (k *inquiry) receive(fd int) (done bool) {
	for {
		n, err := syscall.Read(fd, k.into)
		switch err {
		case nil:
			if k.read = n; n == 0 {
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

// failed keeps what the socket said, in the words of package net.
func (k *inquiry) failed(op string, err error) {
	k.err = &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(op, err)}
}
