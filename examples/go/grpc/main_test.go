package main

import (
	"context"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func start(t *testing.T) grpc_health_v1.HealthClient {
	s, err := service()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- s.Serve(l) }()
	c, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		s.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return grpc_health_v1.NewHealthClient(c)
}

func checkField(t *testing.T, md metadata.MD, name string, want int) {
	t.Helper()
	if got := md.Get(name); len(got) != 1 || got[0] != strconv.Itoa(want) {
		t.Errorf("%s: %v, want %d", name, got, want)
	}
}

func TestTheFirstRefusalHasRetryInfoAndTheFields(t *testing.T) {
	client := start(t)
	for left := 9; left >= 0; left-- {
		var md metadata.MD
		if _, err := client.Check(t.Context(), new(grpc_health_v1.HealthCheckRequest), grpc.Header(&md)); err != nil {
			t.Fatalf("with %d left: %v", left+1, err)
		}
		checkField(t, md, "x-ratelimit-limit", 10)
		checkField(t, md, "x-ratelimit-remaining", left)
	}
	var md metadata.MD
	_, err := client.Check(t.Context(), new(grpc_health_v1.HealthCheckRequest), grpc.Header(&md))
	s := status.Convert(err)
	if s.Code() != codes.ResourceExhausted {
		t.Fatalf("call 11: %v", err)
	}
	checkField(t, md, "x-ratelimit-remaining", 0)
	if len(s.Details()) != 1 {
		t.Fatalf("details: %v", s.Details())
	}
	info, ok := s.Details()[0].(*errdetails.RetryInfo)
	if !ok || info.RetryDelay.Seconds < 1 || info.RetryDelay.Seconds > 60 {
		t.Errorf("details: %v", s.Details())
	}
	checkField(t, md, "retry-after", int(info.GetRetryDelay().GetSeconds()))
	if reset := md.Get("x-ratelimit-reset"); len(reset) != 1 {
		t.Errorf("x-ratelimit-reset: %v", reset)
	}
	if kind := md.Get("content-type"); len(kind) != 1 || kind[0] != "application/grpc" {
		t.Errorf("content-type: %v", kind)
	}
}

func Test100ParallelCallsAreLimitedExactly(t *testing.T) {
	client := start(t)
	var admitted, refused atomic.Int64
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			switch _, err := client.Check(t.Context(), new(grpc_health_v1.HealthCheckRequest)); status.Code(err) {
			case codes.OK:
				admitted.Add(1)
			case codes.ResourceExhausted:
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if admitted.Load() != 10 || refused.Load() != 90 {
		t.Errorf("%d admitted and %d refused, want 10 and 90", admitted.Load(), refused.Load())
	}
}

// A stream holds a slot until it ends.
func TestStreamsAreLimitedInFlight(t *testing.T) {
	client := start(t)
	watch := func() (end func(), err error) {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := client.Watch(ctx, new(grpc_health_v1.HealthCheckRequest))
		if err == nil {
			_, err = s.Recv()
		}
		return func() {
			cancel()
			for err := error(nil); err == nil; _, err = s.Recv() {
			}
		}, err
	}
	first, err := watch()
	if err != nil {
		t.Fatal(err)
	}
	second, err := watch()
	if err != nil {
		t.Fatal(err)
	}
	defer second()
	if _, err := watch(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a third stream: %v", err)
	}
	first()
	for { // the server learns of the end a moment later
		end, err := watch()
		if err == nil {
			end()
			return
		}
		if status.Code(err) != codes.ResourceExhausted || t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}
