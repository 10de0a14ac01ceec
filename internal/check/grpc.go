package check

import (
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/http"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	types "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/grpcdrain"
)

// A grpcServer is the server of the dialect EnvoyGRPC: envoy.service.auth.v3.Authorization, and
// gRPC's health service.
type grpcServer struct {
	door   *Door
	server *grpcdrain.Server
}

// maxMessage is the max size of a question in bytes. It bounds nothing of Envoy's: grpc-go answers
// a larger one with an error, and with_request_body adds a body to the question.
const maxMessage = math.MaxInt32

func newGRPC(d *Door) *grpcServer {
	all := append(grpcdrain.KeepAlive(0, 0), grpc.MaxRecvMsgSize(maxMessage))
	s := &grpcServer{door: d, server: grpcdrain.New(nil, d.rules.Log, all...)}
	// A stream of one message, because grpc-go reads the message of a unary method before it calls
	// it: what strangers send is not read, and takes no memory beyond the window of HTTP/2.
	s.server.RegisterService(&grpc.ServiceDesc{
		ServiceName: auth.Authorization_ServiceDesc.ServiceName,
		Streams:     []grpc.StreamDesc{{StreamName: "Check", Handler: func(_ any, stream grpc.ServerStream) error { return s.check(stream) }}},
		Metadata:    auth.Authorization_ServiceDesc.Metadata,
	}, nil)
	return s
}

func (s *grpcServer) serve(l net.Listener) error {
	l = pace.CountAccepted(l, &s.door.rules.Accepted)
	if s.door.options.TLS != nil {
		l = tls.NewListener(l, s.door.options.TLS)
	}
	return s.server.Serve(l)
}

// stop needs no linger: HTTP/2 announces a drain.
func (s *grpcServer) stop(patience, _ time.Duration) { s.server.Drain(patience) }

// check answers one question. It returns no error if it has read the question: to Envoy an error is
// a server that is not there, which failure_mode_allow lets requests pass.
func (s *grpcServer) check(stream grpc.ServerStream) error {
	d := s.door
	d.rules.Active.Add(1)
	defer d.rules.Active.Add(-1)
	x := d.borrow()
	defer d.giveBack(x)
	from, _ := peer.FromContext(stream.Context())
	at := identity.ParsePeer(from.Addr.String())
	if !d.believes(at) {
		d.note(noticePeer, "a question about a request came from an address that is none of the proxies, and was refused: add it to --forward-auth-peers if it is one",
			"peer", at.String())
		d.reply(x, &stranger)
		return stream.SendMsg(x.response())
	}
	var q auth.CheckRequest
	if err := stream.RecvMsg(&q); err != nil {
		return err
	}
	x.Start = time.Now()
	err := d.asks.readAttributes(&x.sent, q.GetAttributes())
	switch {
	case err != nil:
		d.reject(x, at, err)
	default:
		d.decide(stream.Context(), x)
	}
	err = stream.SendMsg(x.response())
	d.finish(x)
	return err
}

// readAttributes reads the client's request of a question.
func (q *questions) readAttributes(s *sent, a *auth.AttributeContext) error {
	h := a.GetRequest().GetHttp()
	if h == nil {
		return errors.New("the question has no attributes.request.http")
	}
	fields, raw := h.GetHeaders(), h.GetHeaderMap().GetHeaders()
	if len(fields) > 0 && len(raw) > 0 {
		return errors.New("the question has both headers and header_map")
	}
	s.fields = make(map[string][]string, len(fields)+len(raw))
	for name, value := range fields {
		s.add(name, value)
	}
	for _, f := range raw {
		value := f.GetValue()
		if value == "" {
			value = string(f.GetRawValue())
		}
		s.add(f.GetKey(), value)
	}
	if err := q.checkForeign(s); err != nil {
		return err
	}
	s.method, s.uri, s.host, s.proto = h.GetMethod(), h.GetPath(), h.GetHost(), h.GetProtocol()
	if s.method == "" || s.uri == "" {
		return errors.New("the question has no method or no path")
	}
	if s.peer = identity.ParsePeer(a.GetSource().GetAddress().GetSocketAddress().GetAddress()); !s.peer.IsValid() {
		return errors.New("the question has no attributes.source.address.socket_address")
	}
	return nil
}

// add adds a field of the client. The fields of HTTP/2 that begin with a colon are attributes too.
func (s *sent) add(name, value string) {
	if name != "" && name[0] != ':' {
		name = http.CanonicalHeaderKey(name)
		s.fields[name] = append(s.fields[name], value)
	}
}

// response returns the verdict as Envoy reads it.
func (x *exchange) response() *auth.CheckResponse {
	all := make([]*core.HeaderValueOption, 0, len(x.fields))
	for _, f := range x.fields {
		if strings.EqualFold(f.Name, "Content-Length") || strings.EqualFold(f.Name, "Date") {
			continue // Envoy writes its own
		}
		action := core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
		if f.Name == "Vary" || f.Name == "Www-Authenticate" {
			action = core.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
		}
		all = append(all, &core.HeaderValueOption{Header: &core.HeaderValue{Key: strings.ToLower(f.Name), Value: f.Value}, AppendAction: action})
	}
	if x.passes {
		return &auth.CheckResponse{
			Status:       &status.Status{Code: int32(codes.OK)},
			HttpResponse: &auth.CheckResponse_OkResponse{OkResponse: &auth.OkHttpResponse{ResponseHeadersToAdd: all}},
		}
	}
	code := codes.PermissionDenied
	switch x.Status {
	case http.StatusUnauthorized:
		code = codes.Unauthenticated
	case http.StatusTooManyRequests:
		code = codes.ResourceExhausted
	}
	return &auth.CheckResponse{
		Status: &status.Status{Code: int32(code)},
		HttpResponse: &auth.CheckResponse_DeniedResponse{DeniedResponse: &auth.DeniedHttpResponse{
			Status: &types.HttpStatus{Code: types.StatusCode(x.Status)}, Headers: all, Body: string(x.body),
		}},
	}
}
