//go:build !linux

package poller

import "net"

// Take returns c.
func Take(c net.Conn) net.Conn { return c }
