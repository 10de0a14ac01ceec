package pace

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
)

// A layer is a connection that is spoken over another one. *tls.Conn is one, and so are the
// engines' own.
type layer interface{ NetConn() net.Conn }

// Under returns the Conn under the layers of a connection; nil if there is none.
func Under(c net.Conn) *Conn {
	for {
		if paced, ok := c.(*Conn); ok {
			return paced
		}
		over, ok := c.(layer)
		if !ok {
			return nil
		}
		c = over.NetConn()
	}
}

// UnderTLS returns what TLS is spoken over, and c itself if that is not TLS.
func UnderTLS(c net.Conn) net.Conn {
	if secured, ok := c.(*tls.Conn); ok {
		return secured.NetConn()
	}
	return c
}

// connKey is the key of a request's *Conn in its context.
type connKey struct{}

// WithConn is an http.Server's ConnContext: requests find the Conn of their connection by ConnOf.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, Under(c))
}

// ConnOf returns the connection of a request by its context; nil if it did not come through a
// Listener.
func ConnOf(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// A Set holds connections that are to be closed together, such as those of websockets. The zero
// value is empty. It is safe for concurrent use.
type Set struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// Add adds a connection.
func (s *Set) Add(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		s.conns = make(map[net.Conn]struct{})
	}
	s.conns[c] = struct{}{}
}

// Remove removes a connection. It need not be there.
func (s *Set) Remove(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// Len returns the number of connections.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// CloseAll closes every connection that is in the set, and leaves it there.
func (s *Set) CloseAll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for c := range s.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
