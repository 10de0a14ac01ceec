// Package grpcdrain is a server of grpc-go whose drain is like that of Weir's other doors: health
// checks fail at once, and what is under way has a while to end.
package grpcdrain

import (
	"cmp"
	"context"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	health_pb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// A Server is a server of grpc-go with gRPC's health service. It is safe for concurrent use. Make
// one with New.
type Server struct {
	*grpc.Server
	health *watched
	end    context.CancelFunc // of health.ending
}

// workers are the goroutines that answer requests one after another: a fresh one would grow its
// stack for each. If all are at work, a request has a goroutine of its own.
const workers = 256

// maxStreams is the max number of requests under way on one connection.
const maxStreams = 10_000

// New returns a server that is healthy: as a whole, and as each named service. A panic of a handler
// fails its request alone, as with net/http, and log says where it was.
func New(services []string, log *slog.Logger, o ...grpc.ServerOption) *Server {
	h := &watched{Server: health.NewServer()}
	o = append(o, grpc.NumStreamWorkers(workers), grpc.MaxConcurrentStreams(maxStreams),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, of *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (_ any, err error) {
			defer recovered(log, of.FullMethod, &err)
			return handle(ctx, request)
		}),
		grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, of *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
			defer recovered(log, of.FullMethod, &err)
			return handle(server, stream)
		}))
	s := &Server{Server: grpc.NewServer(o...), health: h}
	h.ending, s.end = context.WithCancel(context.Background())
	for _, name := range services {
		h.SetServingStatus(name, health_pb.HealthCheckResponse_SERVING)
	}
	health_pb.RegisterHealthServer(s.Server, h)
	return s
}

// recovered makes an answer that fails of a panic.
func recovered(log *slog.Logger, method string, err *error) {
	if p := recover(); p != nil {
		log.Error("a request could not be answered: this is a fault of Weir, please report it", "method", method, "panic", p, "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, "the request could not be answered: the log of Weir has the reason")
	}
}

// deadPeer is how long a connection is quiet until its peer is asked whether it lives.
const deadPeer = time.Minute

// KeepAlive returns the options of a server for proxies, which keep their connections: each is
// asked to be replaced at an age (0 means 24 h), so that new servers get their share, and closed a
// grace after that (0 means 1 h); peers that are gone are found, and a handler that has begun is
// waited for.
func KeepAlive(age, grace time.Duration) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ConnectionTimeout(10 * time.Second), grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: cmp.Or(age, 24*time.Hour), MaxConnectionAgeGrace: cmp.Or(grace, time.Hour), Time: deadPeer}),
		// The default closes connections of clients that ask more often than every 5 minutes
		// whether the server lives, and Envoy's connection_keepalive does.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	}
}

// Begin begins the drain: every health check fails, and watches end when they have reported that.
func (s *Server) Begin() {
	s.end()
	s.health.Shutdown()
}

// Drain begins the drain, asks clients to leave, lets requests under way end for as long as
// patience, and closes all connections.
func (s *Server) Drain(patience time.Duration) {
	s.Begin()
	done := make(chan struct{})
	go func() { defer close(done); s.GracefulStop() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		s.Stop()
		<-done
	}
}

// watched is the health service. Its watches do not delay a drain.
type watched struct {
	*health.Server
	ending context.Context // ends with the beginning of the drain
}

// Watch implements health_pb.HealthServer.
func (h *watched) Watch(r *health_pb.HealthCheckRequest, stream health_pb.Health_WatchServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	w := &watch{Health_WatchServer: stream, ctx: ctx, cancel: cancel, ending: h.ending}
	defer context.AfterFunc(h.ending, w.endUnlessServing)()
	err := h.Server.Watch(r, w)
	if h.ending.Err() != nil && stream.Context().Err() == nil {
		return status.Error(codes.Unavailable, "the server drains")
	}
	return err
}

// A watch is one stream of the health service.
type watch struct {
	health_pb.Health_WatchServer
	ctx     context.Context
	cancel  context.CancelFunc
	ending  context.Context
	serving atomic.Bool // by the last message
}

// Context implements grpc.ServerStream.
func (w *watch) Context() context.Context { return w.ctx }

// Send sends a status. It is the last one if the server drains and is not serving.
func (w *watch) Send(r *health_pb.HealthCheckResponse) error {
	w.serving.Store(r.GetStatus() == health_pb.HealthCheckResponse_SERVING)
	err := w.Health_WatchServer.Send(r)
	if w.ending.Err() != nil {
		w.endUnlessServing()
	}
	return err
}

// endUnlessServing ends a stream to which the drain will send nothing more: that only changes what
// is serving.
func (w *watch) endUnlessServing() {
	if !w.serving.Load() {
		w.cancel()
	}
}
