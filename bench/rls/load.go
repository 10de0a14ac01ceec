package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/bench/servers"
)

// figures are the result of one turn.
type figures struct {
	rate float64 // decisions a second
	cpu  float64 // of the server, microseconds a decision
	p99  time.Duration
}

const (
	connections = 2
	callers     = 64 // on each connection
)

// turn asks a server for a while, and half a second before that without counting.
func (c contestant) turn(ctx context.Context, o options) (figures, error) {
	length := time.Duration(o.seconds) * time.Second
	if _, err := c.ask(ctx, length/8, o.users); err != nil {
		return figures{}, err
	}
	before, err := servers.CPU(c.pid)
	if err != nil {
		return figures{}, err
	}
	start := time.Now()
	times, err := c.ask(ctx, length, o.users)
	took := time.Since(start)
	after, cpuErr := servers.CPU(c.pid)
	if err := errors.Join(err, cpuErr); err != nil {
		return figures{}, err
	}
	slices.Sort(times)
	n := float64(len(times))
	return figures{n / took.Seconds(), float64((after - before).Microseconds()) / n, times[len(times)*99/100]}, nil
}

// ask returns the time of each answer.
func (c contestant) ask(ctx context.Context, length time.Duration, users int) (all []time.Duration, failed error) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	end := time.Now().Add(length)
	for range connections {
		conn, err := grpc.NewClient(c.at, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		client := pb.NewRateLimitServiceClient(conn)
		for range callers {
			asking.Go(func() {
				own, err := askUntil(ctx, client, end, users)
				mu.Lock()
				defer mu.Unlock()
				all, failed = append(all, own...), errors.Join(failed, err)
			})
		}
	}
	asking.Wait()
	return all, failed
}

func askUntil(ctx context.Context, client pb.RateLimitServiceClient, end time.Time, users int) (times []time.Duration, err error) {
	entry := &ratelimit.RateLimitDescriptor_Entry{Key: "user"}
	r := &pb.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{{Entries: []*ratelimit.RateLimitDescriptor_Entry{entry}}}}
	for {
		start := time.Now()
		if start.After(end) {
			return times, nil
		}
		entry.Value = "u" + strconv.Itoa(rand.IntN(users))
		out, err := client.ShouldRateLimit(ctx, r)
		if err != nil {
			return nil, err
		}
		if out.OverallCode != pb.RateLimitResponse_OK {
			return nil, fmt.Errorf("a request is answered %v", out.OverallCode)
		}
		times = append(times, time.Since(start))
	}
}

// okServer answers OK to everything, with the message of a real answer.
type okServer struct {
	pb.UnimplementedRateLimitServiceServer
}

// ShouldRateLimit implements pb.RateLimitServiceServer.
func (okServer) ShouldRateLimit(_ context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	out := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK}
	for range r.Descriptors {
		out.Statuses = append(out.Statuses, &pb.RateLimitResponse_DescriptorStatus{Code: pb.RateLimitResponse_OK})
	}
	return out, nil
}

// serveOK serves an okServer, unless at is empty.
func serveOK(at string) error {
	if at == "" {
		return nil
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	pb.RegisterRateLimitServiceServer(s, okServer{})
	return s.Serve(l)
}
