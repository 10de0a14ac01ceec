// Command grpc limits a gRPC service. Its service is gRPC's health, so that it needs no generated
// code: put yours in its place.
package main

import (
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/policyfile"
)

// policy could be a file: policyfile.Load.
const policy = `
limiters:
  - name: check
    routes: [POST /grpc.health.v1.Health/Check]
    windows: [10 per minute by ip]
  - name: streams
    routes: [POST /grpc.health.v1.Health/Watch]
    windows: [100 per hour by ip]
    in_flight: 2 by ip
`

func main() {
	s, err := service()
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:8000")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(s.Serve(l))
}

func service() (*grpc.Server, error) {
	file, err := policyfile.Parse("policy", []byte(policy))
	if err != nil {
		return nil, err
	}
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		return nil, err
	}
	who, err := identity.New(identity.Options{}) // behind a proxy: TrustedProxies
	if err != nil {
		return nil, err
	}
	limit, err := newLimiter(file.Policy, store, who)
	if err != nil {
		return nil, err
	}
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(limit.unary), grpc.ChainStreamInterceptor(limit.stream))
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	return s, nil
}
