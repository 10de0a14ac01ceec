package std

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// Hijack implements http.Hijacker. The connection is closed when the gateway has drained.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	x.isHijacked = true
	if x.Status == 0 {
		x.Status = http.StatusSwitchingProtocols
	}
	x.engine.TakenOver.Add(c)
	x.body.finish()
	_ = c.SetReadDeadline(time.Time{})
	pace.EndVanished(pace.UnderTLS(c))
	taken := &hijackedConn{Conn: c, conns: &x.engine.TakenOver}
	taken.bounds = x.engine.Limits.Tunnel(func() {
		if _ = taken.Close(); x.leave != nil {
			x.leave()
		}
	})
	taken.bounds.Start()
	return taken, rw, nil
}

// A hijackedConn leaves the set of connections when it is closed, which the bounds of a tunnel may
// do.
type hijackedConn struct {
	net.Conn
	conns  *pace.Set
	bounds *pace.Tunnel
}

// Read is net.Conn's.
func (c *hijackedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.bounds.Note()
	}
	if errors.Is(err, io.EOF) {
		c.bounds.HalfEnded()
	}
	return n, err
}

// Write is net.Conn's.
func (c *hijackedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.bounds.Note()
	}
	return n, err
}

// Close is net.Conn's.
func (c *hijackedConn) Close() error {
	c.bounds.Stop()
	c.conns.Remove(c.Conn)
	return c.Conn.Close()
}

// CloseWrite closes the sending half, if the connection has halves.
func (c *hijackedConn) CloseWrite() error {
	c.bounds.HalfEnded()
	return pace.CloseWrite(c.Conn)
}
