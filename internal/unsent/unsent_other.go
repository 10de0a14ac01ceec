//go:build !linux

package unsent

import (
	"net"
	"syscall"
)

// Limit does nothing: only Linux has such a bound.
func Limit(*net.TCPConn, int) {}

// Unacknowledged returns 0: only Linux reports it.
func Unacknowledged(syscall.Conn) int64 { return 0 }
