package redistest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
)

// A Network is servers and clients of which any two can be cut off from each other, in both
// directions, while everyone else reaches both. Each of them is a host with a loopback address of
// its own: a server is reached there through a proxy, and the address that a connection comes from
// tells whose it is. It is safe for concurrent use.
type Network struct {
	mu    sync.Mutex
	hosts int
	wires map[string][]*Proxy // by the host that they lead to
}

// NewHost returns the address of another host, which is no server.
func (n *Network) NewHost() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts++
	return fmt.Sprintf("127.1.%d.%d", n.hosts/250, n.hosts%250+1)
}

// enter puts a server that has not started on a host of its own. A nil Network changes nothing.
func (n *Network) enter(s *Server) {
	if n != nil {
		s.network, s.host = n, n.NewHost()
	}
}

// start is Start for a server on a host of its own, with a clock that runs.
func (n *Network) start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := newServer(t, args)
	if n == nil {
		s.start(t)
		return s
	}
	n.enter(s)
	s.Clock = s.startWithClock(t)
	s.Clock.Run(t)
	return s
}

// Dial returns a function that connects as a host.
func (n *Network) Dial(host string) func(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	return d.DialContext
}

// connect opens the way to a server that has started: to its port, and to that of a cluster's bus.
func (n *Network) connect(t testing.TB, s *Server) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, port := range []int{s.port, s.port + busOffset} {
		p := newProxy(net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		p.addr = net.JoinHostPort(s.host, strconv.Itoa(port))
		if err := p.listen(); err != nil {
			return err
		}
		p.endWith(t)
		if n.wires == nil {
			n.wires = make(map[string][]*Proxy)
		}
		n.wires[s.host] = append(n.wires[s.host], p)
	}
	return nil
}

// Part cuts two hosts off from each other: what they send is lost, and no connection is reset.
func (n *Network) Part(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.wires[a] {
		p.part(b)
	}
	for _, p := range n.wires[b] {
		p.part(a)
	}
}

// Heal ends all Parts. Connections that have lost bytes are reset.
func (n *Network) Heal(t testing.TB) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, all := range n.wires {
		for _, p := range all {
			p.Pass(t)
		}
	}
}
