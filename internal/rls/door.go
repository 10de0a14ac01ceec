package rls

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/grpcdrain"
)

// DoorOptions are the settings of a Door; the zero value is useful.
type DoorOptions struct {
	TLS *tls.Config // nil: cleartext
	// Drain is how long requests under way may take when the door closes; 0 means 30 s.
	Drain time.Duration
	// MaxAge is when a connection is asked to be replaced, so that new servers get their share of
	// connections; 0 means 24 h. MaxAgeGrace is when it is closed after that; 0 means 1 h.
	MaxAge, MaxAgeGrace time.Duration
	// Degraded, if set, returns why the store does not count; GET /readyz of operators has it.
	Degraded func() error
}

// A Door serves a Service over gRPC, with gRPC's health service, and over HTTP (see Handler). It is
// safe for concurrent use.
type Door struct {
	service  *Service
	options  DoorOptions
	server   *grpcdrain.Server
	accepted atomic.Int64
	active   atomic.Int64
	draining atomic.Bool
	drained  chan struct{} // closed when the drain begins
	ended    chan struct{} // closed when no call over gRPC is under way any more, after the drain
	// elsewhere means that another process accepts at the sockets.
	elsewhere atomic.Bool
}

const (
	// healthName is the name by which gRPC's health service has envoyproxy/ratelimit.
	healthName = "ratelimit"
	// maxMessage is the max size of a request in bytes.
	maxMessage = 1 << 20
)

// NewDoor returns a Door that does not listen yet.
func NewDoor(s *Service, o DoorOptions) *Door {
	if o.Drain == 0 {
		o.Drain = 30 * time.Second
	}
	d := &Door{service: s, options: o, drained: make(chan struct{}), ended: make(chan struct{})}
	all := append(grpcdrain.KeepAlive(o.MaxAge, o.MaxAgeGrace), grpc.MaxRecvMsgSize(maxMessage))
	if o.TLS != nil {
		all = append(all, grpc.Creds(credentials.NewTLS(o.TLS)))
	}
	d.server = grpcdrain.New([]string{healthName}, s.options.Log, all...)
	pb.RegisterRateLimitServiceServer(d.server, counted{d})
	return d
}

// counted counts the requests under way.
type counted struct{ *Door }

// ShouldRateLimit implements pb.RateLimitServiceServer.
func (c counted) ShouldRateLimit(ctx context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	c.active.Add(1)
	defer c.active.Add(-1)
	return c.service.ShouldRateLimit(ctx, r)
}

// Accepted returns how many connections were accepted, ever.
func (d *Door) Accepted() int64 { return d.accepted.Load() }

// InFlight returns how many requests are being answered.
func (d *Door) InFlight() int64 { return d.active.Load() }

// Draining reports whether the drain has begun.
func (d *Door) Draining() bool { return d.draining.Load() }

// Ready returns the answer to GET /readyz: whether this server wants requests.
func (d *Door) Ready(context.Context) (status int, text string) {
	if d.Draining() {
		return http.StatusServiceUnavailable, "draining"
	}
	if d.options.Degraded != nil {
		if err := d.options.Degraded(); err != nil {
			return http.StatusOK, "degraded: " + err.Error()
		}
	}
	return http.StatusOK, "ok"
}

// HandedOver makes ServeHTTP accept no more as soon as a drain begins: another process does at the
// same socket, and health checks are to reach that one.
func (d *Door) HandedOver() { d.elsewhere.Store(true) }

// Serve accepts connections from l until ctx ends, and then drains: the health service reports
// NOT_SERVING, clients are asked to leave, and requests under way are answered within
// DoorOptions.Drain. It closes l. The error is nil after that, and otherwise why it could not
// serve. It may be called once.
func (d *Door) Serve(ctx context.Context, l net.Listener) error {
	defer close(d.ended)
	ended := make(chan error, 1)
	go func() { ended <- d.server.Serve(pace.CountAccepted(l, &d.accepted)) }()
	select {
	case err := <-ended:
		d.beginDrain()
		return fmt.Errorf("serve Envoy's rate limit service at %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	d.beginDrain()
	d.server.Drain(d.options.Drain)
	<-ended
	return nil
}

// beginDrain makes every health check fail.
func (d *Door) beginDrain() {
	d.server.Begin()
	if !d.draining.Swap(true) {
		close(d.drained)
	}
}
