//go:build !(amd64 || arm64 || riscv64) || race

package nonblock

import "golang.org/x/sys/unix"

// Events returns how many events of an epoll it has put into events, at most all of them. It is 0
// if nothing has happened.
func Events(epoll int, events []unix.EpollEvent) (int, error) {
	return unix.EpollWait(epoll, events, 0)
}
