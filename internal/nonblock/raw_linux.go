//go:build (amd64 || arm64 || riscv64) && !race

package nonblock

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Read reads from a socket into p. It returns syscall.EAGAIN if there is nothing to read, and 0 and
// nil at the end of the stream.
func Read(fd int, p []byte) (int, error) {
	return receive(fd, p, syscall.MSG_DONTWAIT)
}

// Write writes as much of p as the socket takes. It returns syscall.EAGAIN if that is nothing.
func Write(fd int, p []byte) (int, error) {
	n, _, err := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
		uintptr(len(p)), syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, 0, 0)
	if err != 0 {
		return 0, errorOf(err)
	}
	return int(n), nil
}

// Peek is Read, but what it returns is read again by the next call.
func Peek(fd int, p []byte) (int, error) {
	return receive(fd, p, syscall.MSG_DONTWAIT|syscall.MSG_PEEK)
}

// Events returns how many events of an epoll it has put into events, at most all of them. It is 0
// if nothing has happened.
func Events(epoll int, events []unix.EpollEvent) (int, error) {
	n, _, err := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(unsafe.SliceData(events))),
		uintptr(len(events)), 0, 0, 0)
	if err != 0 {
		return 0, errorOf(err)
	}
	return int(n), nil
}

func receive(fd int, p []byte, flags uintptr) (int, error) {
	n, _, err := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
		uintptr(len(p)), flags, 0, 0)
	if err != 0 {
		return 0, errorOf(err)
	}
	return int(n), nil
}

// errEAGAIN is boxed once, since the error is common.
var errEAGAIN error = syscall.EAGAIN

func errorOf(err syscall.Errno) error {
	if err == syscall.EAGAIN {
		return errEAGAIN
	}
	return err
}
