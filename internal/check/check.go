// Package check is the door for proxies that ask about each request before they forward it: nginx's
// auth_request, Traefik's ForwardAuth, Caddy's forward_auth, and Envoy's ext_authz over HTTP and
// gRPC. Such a proxy describes the request of its client in a question, and the answer is either a
// status of the 200s, after which the proxy forwards the request, or the whole refusal.
//
//	check.go    Options, New, and the door's start and drain
//	dialect.go  which fields each proxy sends: one table
//	sent.go     the client's request, as a question describes it
//	judge.go    one request: its path, its limiter, the verdict
//	http.go     questions over HTTP, and their answers
//	engine.go   connections that speak HTTP
//	sealed.go   a refusal as the value of a field, for nginx
//	grpc.go     questions of Envoy over gRPC
//
// What is decided about a request is asked of gateway/rules, as the gateway's engines do. Paths are
// counted as the gateway counts those that it forwards as sent, because the proxy forwards what
// its client has sent. A question has no body, and its proxy never reports the backend's response.
package check

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/notice"
	"github.com/weirlimit/weir/internal/target"
)

// Name is the Observation.Door of requests that this door decides.
const Name = "forward-auth"

// Options are what a Door is made from. All but TLS are required, and Secret is for nginx alone.
type Options struct {
	// Rules are the options of the gateway's rules. The door replaces Sites, Paths, Judged and
	// Ended.
	Rules rules.Options

	Dialect Dialect
	// Peers are the networks of the proxies. A question from another address is answered 403,
	// whatever it says.
	Peers []netip.Prefix

	// Secret returns the key that seals the refusals that nginx brings back: 16 bytes or more, the
	// same on all nodes that one nginx asks. It returns fewer while the key is not known.
	Secret func() []byte

	TLS *tls.Config // nil: cleartext
}

// A Door answers the questions of proxies. It is safe for concurrent use. Make one with New.
type Door struct {
	options Options
	rules   *rules.Rules
	judge   *answer.Judge
	asks    *questions // of Options.Dialect
	pool    sync.Pool  // of *exchange
	noted   [noticeCount]notice.Limit

	lingerFor atomic.Int64 // see LingerFor; 0: Limits.Linger
}

// New checks the options and returns a Door that does not listen yet.
func New(o Options) (*Door, error) {
	if o.Rules.Decider == nil || o.Rules.Identity == nil {
		return nil, errors.New("new forward-auth door: Decider and Identity are required")
	}
	asks := questionsOf(o.Dialect)
	if asks == nil {
		return nil, fmt.Errorf("new forward-auth door: dialect %q: %v are allowed", o.Dialect, Dialects())
	}
	if len(o.Peers) == 0 {
		return nil, errors.New("new forward-auth door: no peers: name the networks of the proxies that may ask")
	}
	if o.Dialect == Nginx && o.Secret == nil {
		return nil, errors.New("new forward-auth door: nginx needs a Secret")
	}
	o.Rules.Sites, o.Rules.Paths, o.Rules.Judged, o.Rules.Ended = nil, target.AsSent, nil, nil
	r, err := rules.New(o.Rules)
	if err != nil {
		return nil, err
	}
	judge, err := answer.New(o.Rules.Decider, answer.Options{
		Door: Name, Identity: o.Rules.Identity, IETF: o.Rules.IETF, Credentials: o.Rules.Credentials,
		Denial: o.Rules.Denial, Observe: o.Rules.Observe, Spent: o.Rules.Spent,
	})
	if err != nil {
		return nil, fmt.Errorf("new forward-auth door: %w", err)
	}
	return &Door{options: o, rules: r, judge: judge, asks: asks, pool: sync.Pool{New: func() any { return new(exchange) }}}, nil
}

// Accepted returns how many connections were accepted, ever.
func (d *Door) Accepted() int64 { return d.rules.Accepted.Load() }

// InFlight returns how many questions are being answered.
func (d *Door) InFlight() int64 { return d.rules.Active.Load() }

// Ready returns the answer to GET /readyz: whether this server wants questions.
func (d *Door) Ready(ctx context.Context) (status int, text string) { return d.rules.Readyz(ctx) }

// Draining reports whether the drain has begun.
func (d *Door) Draining() bool { return d.rules.Draining.Load() }

// Serve accepts connections from l until ctx ends, and then drains: nothing more is accepted, and
// questions under way are answered within Limits.Drain. It closes l. The error is nil after that,
// and otherwise why it could not serve.
func (d *Door) Serve(ctx context.Context, l net.Listener) error {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var s server
	if d.options.Dialect == EnvoyGRPC {
		s = newGRPC(d)
	} else {
		s = newHTTP(base, cut, d)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.serve(l) }()
	select {
	case err := <-ended:
		s.stop(0, 0)
		return fmt.Errorf("serve forward auth at %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	d.rules.Draining.Store(true)
	_ = l.Close() // it may be closed already
	<-ended       // all that was accepted is known
	s.stop(d.rules.Limits.Drain, d.lingers())
	return nil
}

// A server speaks HTTP, or gRPC. It counts the connections that it accepts.
type server interface {
	// serve accepts connections until the listener is closed.
	serve(net.Listener) error
	// stop asks the clients of kept connections to go elsewhere for as long as linger, lets what is
	// under way finish for as long as patience, and closes all connections.
	stop(patience, linger time.Duration)
}

// LingerFor replaces Limits.Linger, for a drain that has not begun.
func (d *Door) LingerFor(linger time.Duration) { d.lingerFor.Store(int64(linger)) }

func (d *Door) lingers() time.Duration {
	if linger := time.Duration(d.lingerFor.Load()); linger > 0 {
		return linger
	}
	return d.rules.Limits.Linger
}

// believes reports whether the peer of a connection may ask.
func (d *Door) believes(peer netip.Addr) bool {
	peer = peer.Unmap().WithZone("")
	return slices.ContainsFunc(d.options.Peers, func(p netip.Prefix) bool { return p.Contains(peer) })
}

// The problems of questions that the log has, each once a minute at most, since strangers can cause
// them.
const (
	noticePeer = iota
	noticeFields
	noticeForeign
	noticeSealed
	noticeCount
)

func (d *Door) note(kind int, message string, args ...any) {
	if log, _ := d.noted[kind].Allow(time.Now()); log {
		d.rules.Log.Warn(message, args...)
	}
}
