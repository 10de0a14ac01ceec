// Package poller waits for TCP connections in the order in which something happened to them.
//
// Go's runtime looks at its connections when it has nothing else to run, and then runs those that it found in reverse: the last to
// become ready first. A server with more to do than time serves a few of its callers a whole round later than the rest for that, and
// these are its 99th percentile. A connection taken from the runtime by Take has its goroutines woken first come, first served.
// On Linux; elsewhere Take leaves connections as they are.
package poller

import (
	"context"
	"net"
)

// Listen returns a listener whose connections are taken as Take does.
func Listen(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Take(c), nil
}

// Dial returns what dials as d does and takes each connection.
func Dial(d *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return Take(c), nil
	}
}
