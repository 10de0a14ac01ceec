package telemetry

import (
	"errors"
	"net"
	"sync"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
)

type connectionMetrics struct {
	open     *prometheus.GaugeVec
	accepted *prometheus.CounterVec
}

func newConnectionMetrics() connectionMetrics {
	return connectionMetrics{
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_connections_open", Help: "Open connections, including idle ones and websockets.",
		}, []string{"listener"}),
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_connections_accepted_total", Help: "Accepted connections.",
		}, []string{"listener"}),
	}
}

func (c *connectionMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{c.open, c.accepted}
}

// Listener wraps l to count its connections under a name from a fixed set, such as "edge" or
// "admin".
func (m *Metrics) Listener(name string, l net.Listener) net.Listener {
	return &listener{l, m.connections.open.WithLabelValues(name), m.connections.accepted.WithLabelValues(name)}
}

type listener struct {
	net.Listener
	open     prometheus.Gauge
	accepted prometheus.Counter
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.accepted.Inc()
	l.open.Inc()
	return &conn{Conn: c, open: l.open}, nil
}

// A conn counts as open until its first Close.
type conn struct {
	net.Conn
	open prometheus.Gauge
	once sync.Once
}

func (c *conn) Close() error {
	c.once.Do(c.open.Dec)
	return c.Conn.Close()
}

// CloseWrite closes the sending half. If the connection has none, the error is
// errors.ErrUnsupported.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SyscallConn returns access to the socket. If the connection has none, the error is
// errors.ErrUnsupported.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if socket, ok := c.Conn.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
