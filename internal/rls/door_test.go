package rls

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/answer"
)

// A drainingDoor is a Door with a call over gRPC under way, whose drain has begun.
type drainingDoor struct {
	*Door
	health         string          // the URL of /healthcheck
	kept           *http.Client    // has a connection from before the drain
	release        func()          // lets the call end
	answered       <-chan error    // of the call
	served, closed <-chan struct{} // by Serve, and by ServeHTTP
}

// drainWithACall begins the drain of a door that has a call under way.
func drainWithACall(t *testing.T, before func(*Door)) drainingDoor {
	t.Helper()
	under, held := make(chan struct{}), make(chan struct{})
	d := NewDoor(newService(t, Options{Observe: func(answer.Observation) {
		close(under)
		<-held
	}}), DoorOptions{})
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	ctx, drain := context.WithCancel(t.Context())
	serve := func(serve func(context.Context, net.Listener) error, l net.Listener) <-chan struct{} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := serve(ctx, l); err != nil {
				t.Error(err)
			}
		}()
		return done
	}
	forEnvoy, forHTTP := listen(), listen()
	answered := make(chan error, 1)
	out := drainingDoor{
		Door: d, health: "http://" + forHTTP.Addr().String() + "/healthcheck", kept: &http.Client{Transport: new(http.Transport)}, answered: answered,
		release: func() { close(held) }, served: serve(d.Serve, forEnvoy), closed: serve(d.ServeHTTP, forHTTP),
	}
	t.Cleanup(out.kept.CloseIdleConnections)
	conn, err := grpc.NewClient(forEnvoy.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		_, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{of("user=a")}})
		answered <- err
	}()
	<-under
	if got := out.check(t, out.kept); got != http.StatusOK {
		t.Fatalf("before the drain /healthcheck is %d", got)
	}
	before(d)
	drain()
	<-d.drained
	return out
}

// check returns the status of /healthcheck; 0: there is no answer.
func (d *drainingDoor) check(t *testing.T, c *http.Client) int {
	t.Helper()
	r, err := c.Get(d.health)
	if err != nil {
		return 0
	}
	_, err = io.Copy(io.Discard, r.Body) // so that the connection is kept
	if err := errors.Join(err, r.Body.Close()); err != nil {
		t.Error(err)
	}
	return r.StatusCode
}

func TestHealthChecksFailAsLongAsCallsDrain(t *testing.T) {
	d := drainWithACall(t, func(*Door) {})
	for range 3 {
		fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		if got := d.check(t, fresh); got != http.StatusInternalServerError {
			t.Errorf("during the drain a new connection gets %d, want 500", got)
		}
	}
	if got := d.check(t, d.kept); got != http.StatusInternalServerError {
		t.Errorf("during the drain a kept connection gets %d, want 500", got)
	}
	d.release()
	if err := <-d.answered; err != nil {
		t.Errorf("the call under way is answered %v", err)
	}
	<-d.served
	<-d.closed
	if got := d.check(t, d.kept); got != 0 {
		t.Errorf("after the drain /healthcheck is %d", got)
	}
}

// The next process answers health checks then. Without HandedOver this test does not end.
func TestADoorThatWasHandedOverAcceptsNoHealthChecks(t *testing.T) {
	d := drainWithACall(t, (*Door).HandedOver)
	<-d.closed // although the call is under way
	d.release()
	if err := <-d.answered; err != nil {
		t.Errorf("the call under way is answered %v", err)
	}
	<-d.served
}
