//go:build !linux

package edge

import "net"

// limitUnsent leaves to the system how much of an answer it takes ahead.
func limitUnsent(*net.TCPConn) {}
