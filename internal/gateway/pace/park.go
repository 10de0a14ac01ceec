package pace

import "net"

// Park has f called in a goroutine of its own, once, when a read of the socket under c would not
// wait: something has come, the read deadline has passed, or the connection was closed. Until then
// the connection must not be read. It returns false, and does not call f, if that may be so
// already, or if the socket cannot be waited for without a goroutine. Nothing that has come may be
// buffered above the socket: call it after a read that had to wait, or before the first one of a
// connection that IsBare.
func Park(c net.Conn, f func()) bool {
	raw, err := rawConn(c)
	if err != nil {
		return false
	}
	socket, ok := raw.(interface{ Park(f func()) bool })
	return ok && socket.Park(f)
}

// IsBare reports whether no layer between c and its socket has read from it yet. The layer that
// takes a PROXY header off a connection may have.
func (c *Conn) IsBare() bool {
	_, layered := c.Conn.(interface{ Raw() net.Conn })
	return !layered
}
