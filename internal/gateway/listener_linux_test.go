package gateway

import (
	"net"
	"testing"

	"github.com/weirlimit/weir/internal/poller"
)

// A seeingListener sends each connection that it accepts to seen.
type seeingListener struct {
	net.Listener
	seen chan net.Conn
}

func (l seeingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.seen <- c
	}
	return c, err
}

// The fast engine's connections wait at the poller also if something counts them. net/http's do
// not.
func TestWrappedConnectionsWaitAtThePoller(t *testing.T) {
	seen := make(chan net.Conn, 1)
	e := open(t, nil, func(o *Options) {
		answering(t, ok200).use(o)
		o.WrapListener = func(l net.Listener) net.Listener { return seeingListener{l, seen} }
	})
	c := e.caller()
	c.request("GET /v1/wp/x")
	c.readAnswer("GET")
	if accepted, taken := within(t, patience, "a connection is accepted", seen), e.gateway.Fast(); isPolled(accepted) != taken {
		t.Errorf("it is a %T; at the poller: %v, want %v", accepted, !taken, taken)
	}
}

func isPolled(c net.Conn) bool {
	_, ok := c.(*poller.Conn)
	return ok
}
