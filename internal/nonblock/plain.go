//go:build !windows && !plan9 && !js && !wasip1 && !(linux && (amd64 || arm64 || riscv64) && !race)

package nonblock

import "syscall"

// Read reads from a socket into p. It returns syscall.EAGAIN if there is nothing to read, and 0 and
// nil at the end of the stream.
func Read(fd int, p []byte) (int, error) { return syscall.Read(fd, p) }

// Write writes as much of p as the socket takes. It returns syscall.EAGAIN if that is nothing.
func Write(fd int, p []byte) (int, error) { return syscall.Write(fd, p) }

// Peek is Read, but what it returns is read again by the next call.
func Peek(fd int, p []byte) (int, error) {
	n, _, err := syscall.Recvfrom(fd, p, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return n, err
}
