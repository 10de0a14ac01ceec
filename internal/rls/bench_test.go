package rls

import (
	"strconv"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
)

// A request of one descriptor, without gRPC; and what its messages cost alone.
func BenchmarkShouldRateLimit(b *testing.B) {
	s := newService(b, Options{})
	requests := make([]*pb.RateLimitRequest, 1000)
	for i := range requests {
		requests[i] = &pb.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{of("user=u" + strconv.Itoa(i))}}
	}
	b.Run("decided", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			if _, err := s.ShouldRateLimit(b.Context(), requests[i%len(requests)]); err != nil {
				b.Fatal(err)
			}
		}
	})
	out, err := s.ShouldRateLimit(b.Context(), requests[0])
	if err != nil {
		b.Fatal(err)
	}
	in, err := proto.Marshal(requests[0])
	if err != nil {
		b.Fatal(err)
	}
	b.Run("messages", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			var r pb.RateLimitRequest
			if err := proto.Unmarshal(in, &r); err != nil {
				b.Fatal(err)
			}
			if _, err := proto.Marshal(out); err != nil {
				b.Fatal(err)
			}
		}
	})
}
