package upstream

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"syscall"

	"github.com/weirlimit/weir/internal/poller"
)

// sessions is how many TLS sessions of one address are kept for resumption.
const sessions = 64

// tlsFor returns the configuration of TLS with one address: HTTP/1.1 alone is offered, sessions are
// resumed.
func tlsFor(o *tls.Config, a Address) *tls.Config {
	config := new(tls.Config)
	if o != nil {
		config = o.Clone()
	}
	if config.ServerName == "" {
		config.ServerName = a.host()
	}
	config.NextProtos = []string{"http/1.1"}
	if config.ClientSessionCache == nil {
		config.ClientSessionCache = tls.NewLRUClientSessionCache(sessions)
	}
	return config
}

// connect makes a connection to a.
func (p *Pool) connect(ctx context.Context, a *address) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.options.Connect)
	defer cancel()
	plain, err := Dial(ctx, a.Host, p.options.Dial)
	if err != nil {
		return nil, fmt.Errorf("connect to %v: %w", a, err)
	}
	c := &Conn{Conn: plain, plain: plain, pool: p, raw: rawOf(plain), socket: poller.Below(plain)}
	if c.raw != nil {
		c.peek = func(fd uintptr) { c.gone = !isQuiet(fd) }
		c.ask.step = c.newStep()
	}
	if a.tls != nil {
		secure := tls.Client(plain, a.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = plain.Close()
			return nil, fmt.Errorf("speak TLS with %v: %w", a, err)
		}
		c.Conn = secure
	}
	c.Reader.Reset(answers{c})
	return c, nil
}

// rawOf returns access to the socket of a connection; nil if it has none.
func rawOf(c net.Conn) syscall.RawConn {
	if socket, ok := c.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

var _ net.Conn = (*Conn)(nil)
