// Package upstream keeps the connections to the backends that a gateway protects: which address a request goes to, which kept
// connection it uses, and which addresses are left alone for a while because they failed (passive health). Both HTTP engines use
// it: the fast one takes connections, net/http's transport asks it for an address.
//
//	upstream.go   Options, Pool
//	address.go    one address and how it is doing
//	conn.go       one connection
//	transport.go  the same choice for net/http
package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/weirlimit/weir/internal/wire"
)

// An Address is where a backend listens.
type Address struct {
	TLS  bool   // https
	Host string // host:port, or [v6]:port; the port is always there
}

// Options are a Pool's settings. Addresses is required; the durations must be positive.
type Options struct {
	Addresses []Address
	TLS       *tls.Config // for addresses that want TLS; nil means the system's roots; ServerName is set for each address

	Connect  time.Duration // most time for a connection, TLS included
	Header   time.Duration // for the head of an answer, once the request is sent
	Stall    time.Duration // for a write, or the next bytes of a body of known length
	Idle     time.Duration // a kept connection that was not used for so long is closed
	MostKept int           // kept connections for each address; 0 means 1024

	Log *slog.Logger // told when an address goes and comes back; nil means slog.Default()
}

// ErrUnavailable says that no address could be connected to; it wraps the last address's error.
var ErrUnavailable = errors.New("no upstream address can be connected to")

// A Pool is safe for concurrent use.
type Pool struct{}

// New returns a pool without connections, and starts the goroutine that closes idle ones; Close ends it.
func New(o Options) (*Pool, error) { panic("not yet") }

// Close closes the kept connections and ends the pool. Connections that are taken are closed when they are returned.
func (p *Pool) Close() error { panic("not yet") }

// Take returns a connection to use for one exchange: a kept one, tried for signs that the other side closed it, or a new one.
// fresh asks for a new one (after a kept one failed). An address that does not connect is marked, and the next is tried, each at
// most once. The error wraps ErrUnavailable, or is ctx's.
func (p *Pool) Take(ctx context.Context, want Want) (*Conn, error) { panic("not yet") }

// Want says what connection is wanted.
type Want struct {
	Fresh bool      // no kept one
	Now   time.Time // the caller's clock, read moments ago; zero: Take reads its own
}

// A Conn is one connection to one address. Exactly one of Keep and Drop ends its use.
type Conn struct {
	net.Conn             // writes have a deadline of Options.Stall
	Reader   wire.Reader // of what comes back
}

// Reused reports whether the connection carried an exchange before this one.
func (c *Conn) Reused() bool { panic("not yet") }

// Address returns where it leads.
func (c *Conn) Address() Address { panic("not yet") }

// AwaitHead gives the reads that follow the time that the head of an answer may take, from now on. It moves the connection's
// deadline only when it has to, so that a wait lasts between Options.Header and an eighth more.
func (c *Conn) AwaitHead(now time.Time) { panic("not yet") }

// AwaitBody gives the next reads Options.Stall, likewise; AwaitStream as long as they take.
func (c *Conn) AwaitBody(now time.Time) { panic("not yet") }

// AwaitStream lets the reads that follow wait for ever.
func (c *Conn) AwaitStream() { panic("not yet") }

// Keep returns a connection whose exchange is complete, both ways, for the next one. The address is well.
func (c *Conn) Keep(now time.Time) { panic("not yet") }

// Drop closes a connection that cannot be used again. failure says what went wrong on the upstream's side before an answer's
// head was there, which counts against the address; nil: nothing (the client went away, the upstream said close).
func (c *Conn) Drop(failure error) { panic("not yet") }

// Transport returns a RoundTripper over base that sends each request to an address of the pool, passing on to the next one
// where a connection is refused, and that judges addresses by the outcome as the pool does.
func (p *Pool) Transport(base http.RoundTripper) http.RoundTripper { panic("not yet") }
