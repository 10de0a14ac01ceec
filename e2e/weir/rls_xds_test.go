package weir

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	limits "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirlimit/weir/e2e/selfsigned"
)

// A controlPlane sends each configuration that a test gives it, and returns what is answered.
type controlPlane struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	configs chan *limits.RateLimitConfig
	answers chan string
	end     chan struct{} // ends a stream
}

func (p *controlPlane) StreamAggregatedResources(s discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	for {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		p.answers <- fmt.Sprintf("%s has %q: %s", r.GetNode().GetId(), r.GetVersionInfo(), r.GetErrorDetail().GetMessage())
		select {
		case <-s.Context().Done():
			return s.Context().Err()
		case <-p.end:
			return nil
		case c := <-p.configs:
			one, err := anypb.New(c)
			if err != nil {
				return err
			}
			if err := s.Send(&discovery.DiscoveryResponse{VersionInfo: c.Name, Nonce: c.Name, TypeUrl: r.GetTypeUrl(), Resources: []*anypb.Any{one}}); err != nil {
				return err
			}
		}
	}
}

// The variables and the certificates are those that Envoy Gateway gives its rate limit service.
func TestEnvoyIsAnsweredByTheLimitsOfAControlPlane(t *testing.T) {
	keys := t.TempDir()
	certFile, keyFile := filepath.Join(keys, "tls.crt"), filepath.Join(keys, "tls.key")
	var secured atomic.Pointer[tls.Config]
	// certify has the control plane show a new certificate, and accept it alone. Files of the
	// server are written first, one of them or both.
	certify := func(files ...string) {
		t.Helper()
		at := t.TempDir()
		own, err := selfsigned.Write(filepath.Join(at, "tls.crt"), filepath.Join(at, "tls.key"), "localhost")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if err := os.Rename(filepath.Join(at, filepath.Base(file)), file); err != nil {
				t.Fatal(err)
			}
		}
		trusted := x509.NewCertPool()
		trusted.AddCert(own.Leaf)
		secured.Store(&tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2"}})
	}
	certify(certFile, keyFile)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &controlPlane{configs: make(chan *limits.RateLimitConfig, 1), answers: make(chan string, 10), end: make(chan struct{})}
	plane := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return secured.Load(), nil }})))
	discovery.RegisterAggregatedDiscoveryServiceServer(plane, p)
	serving := make(chan error, 1)
	go func() { serving <- plane.Serve(l) }()
	defer func() { plane.Stop(); <-serving }()
	s := serveRLS(t, "", []string{
		"GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "HOST=127.0.0.1", "PORT=0", "USE_STATSD=false", "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=" + l.Addr().String(), "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=" + certFile, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY=" + keyFile, "CONFIG_GRPC_XDS_SERVER_TLS_CACERT=" + certFile,
	}, nil, "--rls-env")
	if got := s.ask(t, rlsRequest("gateway", 0, "rule-0-match-0=x")); got != "Unknown: no rate limit configuration loaded" {
		t.Errorf("before a configuration: %s", got)
	}
	answer := func(want string) {
		t.Helper()
		if got := <-p.answers; !strings.HasPrefix(got, want) {
			t.Errorf("the control plane learns %s, want %s", got, want)
		}
	}
	limit := func(version string, unit limits.RateLimitUnit, requests uint32) {
		p.configs <- &limits.RateLimitConfig{Name: version, Domain: "gateway", Descriptors: []*limits.RateLimitDescriptor{
			{Key: "rule-0-match-0", RateLimit: &limits.RateLimitPolicy{Unit: unit, RequestsPerUnit: requests}},
		}}
	}
	answer(`envoy-ratelimit has ""`)
	limit("1", limits.RateLimitUnit_HOUR, 3)
	answer(`envoy-ratelimit has "1": `)
	if got := s.ask(t, rlsRequest("gateway", 0, "rule-0-match-0=x")); got != "OK OK/2" {
		t.Errorf("with a configuration: %s", got)
	}
	limit("2", limits.RateLimitUnit_YEAR, 3)
	answer(`envoy-ratelimit has "1": resource "2" of domain "gateway": descriptor rule-0-match-0: unit "YEAR": `)
	limit("3", limits.RateLimitUnit_HOUR, 5)
	answer(`envoy-ratelimit has "3": `)
	if got := s.ask(t, rlsRequest("gateway", 0, "rule-0-match-0=x")); got != "OK OK/3" {
		t.Errorf("with the next one: %s", got)
	}
	if _, err := s.stderr.await(regexp.MustCompile(`configuration of the control plane cannot be used; the one before stays in force`)); err != nil {
		t.Error(err)
	}

	// the certificate is renewed, at first without its key: what is in force stays until both fit
	certify(certFile)
	p.end <- struct{}{}
	if _, err := s.stderr.await(regexp.MustCompile(`control plane of the rate limit configuration cannot be followed; what is in force stays.*private key does not match`)); err != nil {
		t.Error(err)
	}
	if got := s.ask(t, rlsRequest("gateway", 0, "rule-0-match-0=x")); got != "OK OK/2" {
		t.Errorf("without a control plane: %s", got)
	}
	certify(certFile, keyFile)
	answer(`envoy-ratelimit has "": `)
	limit("4", limits.RateLimitUnit_HOUR, 9)
	answer(`envoy-ratelimit has "4": `)
	if got := s.ask(t, rlsRequest("gateway", 0, "rule-0-match-0=x")); got != "OK OK/5" {
		t.Errorf("with a renewed certificate: %s", got)
	}
	s.endRLS(t)
}
