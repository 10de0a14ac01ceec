package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	limits "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirlimit/weir/internal/rls/config"
)

// A plane is a control plane that a test plays: it reads what is asked, and answers.
type plane struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	streams chan discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer
	end     chan error // ends a stream
}

func (p *plane) StreamAggregatedResources(s discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	p.streams <- s
	select {
	case err := <-p.end:
		return err
	case <-s.Context().Done():
		return s.Context().Err()
	}
}

// followed starts a control plane, and a follower of it. used has the domains of what is used.
func followed(t *testing.T) (p *plane, used chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p = &plane{streams: make(chan discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer), end: make(chan error)}
	s := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(s, p)
	serving, done := make(chan error, 1), make(chan struct{})
	go func() { serving <- s.Serve(l) }()
	used = make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		Follow(ctx, Options{Address: l.Addr().String(), Node: "node", Log: slog.New(slog.DiscardHandler), Pause: time.Millisecond, Use: func(files []config.File) error {
			c, err := config.Parse(files, config.Options{})
			if err == nil {
				used <- strings.Join(c.Names(), " ")
			}
			return err
		}})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		s.Stop()
		<-serving
	})
	return p, used
}

func resource(t *testing.T, domain string, unit limits.RateLimitUnit) *anypb.Any {
	t.Helper()
	r, err := anypb.New(&limits.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*limits.RateLimitDescriptor{
		{Key: "a", Value: "1", RateLimit: &limits.RateLimitPolicy{Unit: unit, RequestsPerUnit: 3}},
		{Key: "b", RateLimit: &limits.RateLimitPolicy{Unlimited: true}, ShadowMode: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (p *plane) send(t *testing.T, s discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer, version string, all ...*anypb.Any) {
	t.Helper()
	if err := s.Send(&discovery.DiscoveryResponse{VersionInfo: version, Nonce: "n" + version, TypeUrl: typeURL, Resources: all}); err != nil {
		t.Fatal(err)
	}
}

// asked returns the next request of the follower as a text.
func asked(t *testing.T, s discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) string {
	t.Helper()
	r, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s has %q, answers %q: %s", r.GetNode().GetId(), r.GetVersionInfo(), r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
}

func TestAResponseIsUsedOrRejectedAndTheControlPlaneLearnsWhich(t *testing.T) {
	p, used := followed(t)
	s := <-p.streams
	if got := asked(t, s); got != `node has "", answers "": ` {
		t.Errorf("at first: %s", got)
	}
	p.send(t, s, "1", resource(t, "x", limits.RateLimitUnit_WEEK), resource(t, "y", limits.RateLimitUnit_HOUR))
	if got := asked(t, s); got != `node has "1", answers "n1": ` || <-used != "x y" {
		t.Errorf("after a valid response: %s", got)
	}
	for i := range 3 { // a control plane that goes on sending what cannot be used
		p.send(t, s, "2", resource(t, "x", limits.RateLimitUnit_YEAR))
		if got := asked(t, s); !strings.HasPrefix(got, `node has "1", answers "n2": resource "x" of domain "x": descriptor a=1: unit "YEAR": the longest window is a month`) {
			t.Errorf("after invalid response %d: %s", i, got)
		}
	}
	p.send(t, s, "3", &anypb.Any{TypeUrl: typeURL, Value: []byte{0xff}})
	if got := asked(t, s); !strings.HasPrefix(got, `node has "1", answers "n3": resource 0: `) {
		t.Errorf("after a resource that is none: %s", got)
	}
	p.send(t, s, "4")
	if got := asked(t, s); got != `node has "4", answers "n4": ` || <-used != "" {
		t.Errorf("after no resources: %s", got)
	}
}

// A control plane that was restarted counts its versions anew. It may answer nothing to one that it
// has, though that was another configuration: so it is told none.
func TestAControlPlaneThatIsRestartedIsFollowed(t *testing.T) {
	p, used := followed(t)
	s := <-p.streams
	asked(t, s)
	for _, domain := range []string{"x", "y", "z"} {
		p.send(t, s, "1", resource(t, domain, limits.RateLimitUnit_DAY))
		if got := asked(t, s); got != `node has "1", answers "n1": ` || <-used != domain {
			t.Errorf("domain %s: %s", domain, got)
		}
		p.end <- errors.New("gone")
		s = <-p.streams
		if got := asked(t, s); got != `node has "", answers "": ` {
			t.Errorf("after it has come back: %s", got)
		}
	}
}
