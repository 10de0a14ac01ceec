// Package upstream keeps the connection pools of the backends that a gateway protects. It chooses
// the address of a request and a kept connection to it, and avoids addresses that failed, as
// requests or health checks of its own find out. Both HTTP engines take their connections from it.
//
//	upstream.go   Options, Pool: taking a connection, and closing idle ones
//	address.go    one address: when it is chosen, its health
//	check.go      health checks, which find an address that is down before a request does
//	conn.go       one connection, and the time its reads and writes get
//	ask*.go       a request sent and its answer awaited in one operation
//	dial.go       a new connection, with TLS if the address wants it
//	socket.go     addresses that are Unix sockets
//	peek_*.go     whether the other side of a kept connection is gone
//	state.go      the health of each address, for operators
package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/poller"
)

// An Address is where a backend listens.
type Address struct {
	TLS bool // https
	// host:port, or [v6]:port, always with a port; of a Unix socket, what stands for its path
	Host string
}

// String returns the address as the scheme and the host of a URL, or as unix: and a path.
func (a Address) String() string {
	if path, ok := SocketOf(a.Host); ok {
		return "unix:" + path
	}
	return a.scheme() + "://" + a.Host
}

// Endpoint returns the host and port of the address, or the path of a Unix socket and 0. ok is
// false for the zero value.
func (a Address) Endpoint() (host string, port int, ok bool) {
	if path, ok := SocketOf(a.Host); ok {
		return path, 0, true
	}
	host, digits, err := net.SplitHostPort(a.Host)
	if err != nil {
		return "", 0, false
	}
	port, _ = strconv.Atoi(digits) // 0: it is the name of a service
	return host, port, true
}

func (a Address) scheme() string {
	if a.TLS {
		return "https"
	}
	return "http"
}

// MaxAddresses is how many addresses one pool may have.
const MaxAddresses = 64

// Options are a Pool's settings. Addresses is required; the durations must be positive, but
// where they say otherwise.
type Options struct {
	Addresses []Address
	// of https addresses; nil means the system's roots; without a ServerName, it is the host of
	// each address
	TLS *tls.Config

	Connect time.Duration // for a connection to be made, TLS included
	// for the head of an answer, once the request is sent; negative: no bound
	Header time.Duration
	Stall  time.Duration // for a write, or the next bytes of a body of known length
	Stream time.Duration // for the next bytes of a body without a length; 0: no bound
	// a kept connection that was not used for so long is closed, up to an eighth of it later
	Idle    time.Duration
	MaxKept int // kept connections for each address; 0 means 1024

	// Dial makes the connection that TLS, if any, is spoken over; nil means a net.Dialer, which
	// tries all that a name resolves to.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// has a line when an address goes down and when it is back; nil means slog.Default()
	Log *slog.Logger
}

// ErrUnavailable is returned if no address could be connected to. It comes with the last address's
// error.
var ErrUnavailable = errors.New("no upstream address can be connected to")

// check returns what is wrong with the options.
func (o *Options) check() error {
	if n := len(o.Addresses); n == 0 || n > MaxAddresses {
		return fmt.Errorf("%d upstream addresses: 1 to %d are allowed", n, MaxAddresses)
	}
	seen := make(map[Address]bool, len(o.Addresses))
	for _, a := range o.Addresses {
		if host, port, err := net.SplitHostPort(a.Host); err != nil || host == "" || port == "" {
			return fmt.Errorf("upstream address %q: expected HOST:PORT or [IPV6]:PORT", a.Host)
		}
		if seen[a] {
			return fmt.Errorf("upstream address %v occurs twice: give each once", a)
		}
		seen[a] = true
	}
	for _, d := range []struct {
		name string
		time.Duration
	}{{"Connect", o.Connect}, {"Stall", o.Stall}, {"Idle", o.Idle}} {
		if d.Duration <= 0 {
			return fmt.Errorf("%s of %v for the upstream: expected more than zero", d.name, d.Duration)
		}
	}
	if o.Header == 0 {
		return errors.New("the upstream has a Header of 0: expected more than zero, or less for no bound")
	}
	if o.Stream < 0 {
		return fmt.Errorf("the upstream has a Stream of %v: expected zero, for no bound, or more", o.Stream)
	}
	if o.MaxKept < 0 {
		return fmt.Errorf("%d kept upstream connections: expected zero, for the default, or more", o.MaxKept)
	}
	return nil
}

// A Pool is the addresses of one backend, and the connections to them. It is safe for concurrent
// use.
type Pool struct {
	options Options
	log     *slog.Logger

	mu        sync.Mutex // held for a few instructions at a time, never during a wait
	addresses []*address
	next      int // where the search for the next address begins, so that ties rotate
	closed    bool
	watched   bool // closeIdle runs, or has run

	stop, stopped chan struct{}
}

// New returns a pool without connections. The first one that is kept starts a goroutine that closes
// idle ones; Close ends it.
func New(o Options) (*Pool, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.MaxKept == 0 {
		o.MaxKept = 1024
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
	}
	p := &Pool{options: o, log: o.Log, stop: make(chan struct{}), stopped: make(chan struct{})}
	if p.log == nil {
		p.log = slog.Default()
	}
	for i, a := range o.Addresses {
		one := &address{Address: a, index: i}
		if a.TLS {
			one.tls = tlsFor(o.TLS, a)
		}
		p.addresses = append(p.addresses, one)
	}
	return p, nil
}

// Close closes the kept connections and ends the pool. Connections in use are closed when they are
// returned. A second Close does nothing.
func (p *Pool) Close() error {
	p.mu.Lock()
	again, watched := p.closed, p.watched
	p.closed = true
	var all []*Conn
	for _, a := range p.addresses {
		all = append(all, a.takeKept()...)
	}
	p.mu.Unlock()
	if !again {
		close(p.stop)
	}
	if watched {
		<-p.stopped
	}
	closeAll(all)
	return nil
}

// Want is what Take is asked for.
type Want struct {
	Fresh bool      // a new connection
	Ask   bool      // the exchange begins with Conn.Ask, which checks a kept connection itself
	Now   time.Time // the caller's clock, time.Now() moments ago; zero: Take reads the clock
	// Task is what the connection is attached to. It is detached if a connection has to be made.
	Task *poller.Task

	tried set   // see Conn.Else
	last  error // why the last of them failed
}

// Take returns a connection for one exchange: a kept one, after a check that the other side has not
// closed it, or a new one. An address that does not connect is marked as failed and the next one is
// tried, each once at most. The error wraps ErrUnavailable, or is ctx's; that of a closed pool
// wraps net.ErrClosed.
func (p *Pool) Take(ctx context.Context, want Want) (*Conn, error) {
	now := want.Now
	if now.IsZero() {
		now = time.Now()
	}
	tried, last := want.tried, want.last
	for {
		p.mu.Lock()
		a := p.choose(now, tried)
		if a == nil || p.closed {
			closed := p.closed
			p.mu.Unlock()
			if closed {
				return nil, fmt.Errorf("take an upstream connection: the pool is closed: %w", net.ErrClosed)
			}
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, last)
		}
		turn := p.begin(a, now)
		var c *Conn
		if !want.Fresh {
			c = a.pop()
		}
		p.mu.Unlock()
		if c = p.usable(c, a, now, want.Ask); c != nil {
			c.use(turn, now)
			c.Attach(want.Task)
			return c, nil
		}
		want.Task.Detach()
		c, err := p.connect(ctx, a)
		if err == nil {
			c.use(turn, time.Now())
			c.Attach(want.Task)
			return c, nil
		}
		if ctx.Err() != nil {
			p.end(turn, nil)
			return nil, ctx.Err()
		}
		p.end(turn, &connectError{err})
		tried, last, now = tried.with(a), err, time.Now()
	}
}

// usable returns c, or the next kept connection of a that can carry another exchange; nil if none
// can. Each is checked, here or by Ask, however recently it was used: the socket or its poller is
// asked (freshFor). Unsolicited bytes, such as a
// body after the answer to a HEAD, would be taken for the answer to the next request, which may be
// another client's.
func (p *Pool) usable(c *Conn, a *address, now time.Time, asks bool) *Conn {
	for c != nil {
		if now.Sub(c.since) < p.options.Idle && (asks || c.quiet()) {
			return c
		}
		_ = c.plain.Close() // as in Drop
		p.mu.Lock()
		c = a.pop()
		p.mu.Unlock()
	}
	return nil
}

// closeIdle closes connections that were not used for Options.Idle, until Close.
func (p *Pool) closeIdle() {
	defer close(p.stopped)
	tick := time.NewTicker(max(p.options.Idle/8, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			for _, a := range p.addresses {
				p.mu.Lock()
				idle := a.popIdle(time.Now().Add(-p.options.Idle))
				p.mu.Unlock()
				closeAll(idle)
			}
		}
	}
}

func closeAll(all []*Conn) {
	for _, c := range all {
		_ = c.Conn.Close()
	}
}
