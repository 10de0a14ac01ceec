package check_test

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirlimit/weir/internal/check"
	"github.com/weirlimit/weir/internal/logtest"
)

// dialed serves a door for Envoy over gRPC, and connects to it. stop drains it.
func dialed(t *testing.T, d *check.Door) (conn *grpc.ClientConn, stop func()) {
	t.Helper()
	addr, stop := serving(t, d)
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, stop
}

// request is what Envoy sends about a request.
func request(method, path, addr string, headers map[string]string) *auth.CheckRequest {
	return &auth.CheckRequest{Attributes: &auth.AttributeContext{
		Source: &auth.AttributeContext_Peer{Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
			Address: addr, PortSpecifier: &core.SocketAddress_PortValue{PortValue: 4711}}}}},
		Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{
			Id: "1", Method: method, Path: path, Host: "example.com", Scheme: "https", Protocol: "HTTP/2", Headers: headers,
		}},
	}}
}

func TestEnvoyGetsTheRefusalWhole(t *testing.T) {
	conn, _ := dialed(t, open(t, check.EnvoyGRPC, policy))
	envoy := auth.NewAuthorizationClient(conn)
	headers := map[string]string{":method": "POST", ":path": "/api/leads", "user-agent": "curl", "accept-language": "de", "x-envoy-internal": "true"}
	for n := range 5 {
		r, err := envoy.Check(t.Context(), request("POST", "/api/leads", "192.0.2.7", headers))
		if err != nil {
			t.Fatal(err)
		}
		if n < 3 {
			if ok := r.GetOkResponse(); r.GetStatus().GetCode() != int32(codes.OK) || valueOf(ok.GetResponseHeadersToAdd(), "x-ratelimit-limit") != "3" {
				t.Errorf("request %d: %v", n+1, r)
			}
			continue
		}
		denied := r.GetDeniedResponse()
		if r.GetStatus().GetCode() == int32(codes.OK) || denied.GetStatus().GetCode() != 429 || len(denied.GetBody()) < 50 ||
			valueOf(denied.GetHeaders(), "retry-after") == "" || valueOf(denied.GetHeaders(), "content-language") != "de" ||
			valueOf(denied.GetHeaders(), "content-type") != "application/json" || valueOf(denied.GetHeaders(), "content-length") != "" {
			t.Errorf("request %d: %v", n+1, r)
		}
	}
}

func valueOf(all []*core.HeaderValueOption, name string) string {
	for _, h := range all {
		if h.GetHeader().GetKey() == name {
			return h.GetHeader().GetValue()
		}
	}
	return ""
}

// A question is never answered with an error, which failure_mode_allow would let pass.
func TestWhatEnvoyCannotHaveSentIsDenied(t *testing.T) {
	log := new(logtest.Buffer)
	conn, _ := dialed(t, open(t, check.EnvoyGRPC, policy, func(o *check.Options) { o.Rules.Log = slog.New(slog.NewTextHandler(log, nil)) }))
	envoy := auth.NewAuthorizationClient(conn)
	both := request("POST", "/api/leads", "192.0.2.7", map[string]string{"a": "b"})
	both.Attributes.Request.Http.HeaderMap = &core.HeaderMap{Headers: []*core.HeaderValue{{Key: "a", RawValue: []byte("b")}}}
	for what, q := range map[string]*auth.CheckRequest{
		"nothing":                  {},
		"no request":               {Attributes: &auth.AttributeContext{}},
		"no path":                  request("POST", "", "192.0.2.7", nil),
		"no method":                request("", "/x", "192.0.2.7", nil),
		"no address":               request("POST", "/x", "", nil),
		"no such address":          request("POST", "/x", "localhost", nil),
		"headers twice":            both,
		"another proxy's field":    request("POST", "/x", "192.0.2.7", map[string]string{"x-original-uri": "/free"}),
		"a path with two readings": request("POST", "/x/../api/leads", "192.0.2.7", nil),
		"a method that is none":    request("PO ST", "/x", "192.0.2.7", nil),
	} {
		r, err := envoy.Check(t.Context(), q)
		if err != nil || r.GetDeniedResponse().GetStatus().GetCode() < 400 || r.GetStatus().GetCode() == int32(codes.OK) {
			t.Errorf("%s: %v, %v", what, r, err)
		}
	}
	if text := log.String(); !strings.Contains(text, "X-Original-Uri: a field of another proxy, which envoy-grpc does not send") {
		t.Errorf("the log does not name another proxy's field: %s", text)
	}
	raw := request("POST", "/api/leads", "192.0.2.7", nil)
	raw.Attributes.Request.Http.HeaderMap = &core.HeaderMap{Headers: []*core.HeaderValue{{Key: "user-agent", RawValue: []byte("curl")}}}
	if r, err := envoy.Check(t.Context(), raw); err != nil || r.GetOkResponse() == nil {
		t.Errorf("with encode_raw_headers: %v, %v", r, err)
	}
}

func TestAnEnvoyThatIsNoPeerIsDenied(t *testing.T) {
	conn, _ := dialed(t, open(t, check.EnvoyGRPC, policy, func(o *check.Options) { o.Peers = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} }))
	r, err := auth.NewAuthorizationClient(conn).Check(t.Context(), request("GET", "/x", "192.0.2.7", nil))
	if err != nil || r.GetDeniedResponse().GetStatus().GetCode() != 403 {
		t.Errorf("%v, %v", r, err)
	}
}

// with_request_body makes a question as large as the body of the request.
func TestAQuestionWithALargeBodyIsCounted(t *testing.T) {
	conn, _ := dialed(t, open(t, check.EnvoyGRPC, policy))
	q := request("POST", "/api/leads", "192.0.2.7", nil)
	q.Attributes.Request.Http.RawBody = make([]byte, 8<<20)
	for n := range 4 {
		r, err := auth.NewAuthorizationClient(conn).Check(t.Context(), q)
		if err != nil || (r.GetOkResponse() != nil) != (n < 3) {
			t.Fatalf("question %d: %v, %v", n+1, r.GetStatus(), err)
		}
	}
}

// A stranger that sends a question gets the denial before its end, so its size takes no memory.
func TestWhatStrangersSendIsNotRead(t *testing.T) {
	conn, _ := dialed(t, open(t, check.EnvoyGRPC, policy, func(o *check.Options) { o.Peers = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} }))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, auth.Authorization_Check_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	var r auth.CheckResponse // nothing is sent before it
	if err := stream.RecvMsg(&r); err != nil || r.GetDeniedResponse().GetStatus().GetCode() != 403 {
		t.Errorf("%v, %v", &r, err)
	}
}

func TestTheGRPCDoorIsHealthyUntilItDrains(t *testing.T) {
	conn, stop := dialed(t, open(t, check.EnvoyGRPC, policy))
	health := grpc_health_v1.NewHealthClient(conn)
	r, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil || r.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", r, err)
	}
	watch, err := health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	go stop()
	if r, err = watch.Recv(); err == nil && r.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("while it drains it is %v", r.GetStatus())
	}
	stop()
}
