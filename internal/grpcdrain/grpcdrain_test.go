package grpcdrain

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	health_pb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// serve serves s, and returns a client of its health service.
func serve(t *testing.T, s *Server) health_pb.HealthClient {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return health_pb.NewHealthClient(conn)
}

// Without the end of watches, this drain would last until the test times out.
func TestWatchesOfTheHealthDoNotDelayADrain(t *testing.T) {
	s := New([]string{"limits"}, slog.New(slog.DiscardHandler))
	client := serve(t, s)
	var all []health_pb.Health_WatchClient
	for service, want := range map[string]health_pb.HealthCheckResponse_ServingStatus{
		"": health_pb.HealthCheckResponse_SERVING, "limits": health_pb.HealthCheckResponse_SERVING, "other": health_pb.HealthCheckResponse_SERVICE_UNKNOWN,
	} {
		w, err := client.Watch(t.Context(), &health_pb.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := w.Recv(); err != nil || r.GetStatus() != want {
			t.Fatalf("service %q: %v, %v", service, r, err)
		}
		if want == health_pb.HealthCheckResponse_SERVING {
			all = append(all, w)
		}
	}
	s.Drain(time.Hour)
	for _, w := range all {
		if r, err := w.Recv(); err != nil || r.GetStatus() != health_pb.HealthCheckResponse_NOT_SERVING {
			t.Errorf("the drain is reported as %v, %v", r, err)
		}
		if _, err := w.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("the watch ends with %v", err)
		}
	}
}

func TestWhatOutlastsTheDrainIsCutOff(t *testing.T) {
	s := New(nil, slog.New(slog.DiscardHandler))
	under := make(chan struct{})
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "slow", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "Ask", Handler: func(_ any, ctx context.Context, _ func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		close(under)
		<-ctx.Done()
		return nil, ctx.Err()
	}}}}, struct{}{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answered := make(chan error, 1)
	go func() {
		answered <- conn.Invoke(t.Context(), "/slow/Ask", &health_pb.HealthCheckRequest{}, &health_pb.HealthCheckResponse{})
	}()
	<-under
	s.Drain(0)
	if err := <-answered; status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
		t.Errorf("the request is answered %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The process and the other requests go on.
func TestAPanicFailsItsRequestAlone(t *testing.T) {
	var log bytes.Buffer
	ask := func() (err error) {
		defer recovered(slog.New(slog.NewTextHandler(&log, nil)), "/limits/Ask", &err)
		panic("a fault")
	}
	if err := ask(); status.Code(err) != codes.Internal {
		t.Errorf("the answer is %v", err)
	}
	if text := log.String(); !strings.Contains(text, "/limits/Ask") || !strings.Contains(text, "a fault") || !strings.Contains(text, "TestAPanicFails") {
		t.Errorf("the log has %s", text)
	}
}
