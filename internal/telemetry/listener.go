package telemetry

import (
	"errors"
	"net"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

type connectionMetrics struct {
	open     *prometheus.GaugeVec
	accepted *prometheus.CounterVec
}

func newConnectionMetrics() connectionMetrics {
	return connectionMetrics{
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_connections_open", Help: "Connections that are open, idle ones and websockets included.",
		}, []string{"listener"}),
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_connections_accepted_total", Help: "Connections that were accepted.",
		}, []string{"listener"}),
	}
}

func (c *connectionMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{c.open, c.accepted}
}

// Listener counts the connections of l under a name, which is one of a few: "edge", "admin".
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

// A conn is counted until it is first closed.
type conn struct {
	net.Conn
	open prometheus.Gauge
	once sync.Once
}

func (c *conn) Close() error {
	c.once.Do(c.open.Dec)
	return c.Conn.Close()
}

// CloseWrite closes the sending half, where there are halves.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
