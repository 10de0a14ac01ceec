package main

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/identity"
)

// A limiter is a pair of interceptors. A call's route is POST and its full method, such as
// "POST /grpc.health.v1.Health/Check", and its header fields are its metadata. A call that no route
// covers is not limited.
type limiter struct {
	judge     *answer.Judge
	who       *identity.Resolver
	exchanges sync.Pool
}

// newLimiter returns a limiter by a policy that counts in store. who resolves callers; behind a
// proxy it has TrustedProxies.
func newLimiter(p weir.Policy, store weir.Store, who *identity.Resolver) (*limiter, error) {
	decider, err := weir.New(p, store, weir.Options{Sources: who.Sources()})
	if err != nil {
		return nil, err
	}
	judge, err := answer.New(decider, answer.Options{Door: "grpc", Identity: who})
	if err != nil {
		return nil, err
	}
	l := &limiter{judge: judge, who: who}
	l.exchanges.New = func() any { return new(exchange) }
	return l, nil
}

// unary limits unary calls.
func (l *limiter) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	end, err := l.judgeCall(ctx, info.FullMethod, func(md metadata.MD) error { return grpc.SetHeader(ctx, md) })
	if err != nil {
		return nil, err
	}
	defer end()
	return handler(ctx, request)
}

// stream limits streams, each as one request: its messages are not counted. It holds a slot of a
// limit in flight until it ends.
func (l *limiter) stream(server any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	end, err := l.judgeCall(s.Context(), info.FullMethod, s.SetHeader)
	if err != nil {
		return err
	}
	defer end()
	return handler(server, s)
}

// An exchange is the memory of one call, used again for the next.
type exchange struct {
	call     call
	caller   identity.Caller
	question answer.Question
	answer   answer.Answer
	fields   []answer.Field
}

// judgeCall judges a call and sets its response metadata. If the error is nil the call goes on, and
// end must be called when it has ended.
func (l *limiter) judgeCall(ctx context.Context, method string, set func(metadata.MD) error) (end func(), err error) {
	e := l.exchanges.Get().(*exchange)
	e.call = call{ctx}
	l.who.Start(&e.caller, &e.call)
	e.question = answer.Question{Caller: &e.caller, Method: "POST", Host: e.call.Host(), Path: method}
	if err := l.judge.Answer(ctx, &e.question, &e.answer); err != nil {
		return nil, status.Errorf(codes.Internal, "limit the call: %v", err)
	}
	end = func() {
		l.judge.End(ctx, &e.answer)
		e.call = call{}
		l.exchanges.Put(e)
	}
	e.fields = e.answer.AppendFields(e.fields[:0])
	md := metadata.MD{}
	retry := int64(0)
	for _, f := range e.fields {
		switch f.Name {
		case headers.RetryAfter:
			retry, _ = strconv.ParseInt(f.Value, 10, 64) // a number of seconds
			md.Append(strings.ToLower(f.Name), f.Value)
		case "Content-Type", "Content-Length": // of the HTTP body, which gRPC does not send
		default:
			md.Append(strings.ToLower(f.Name), f.Value)
		}
	}
	if err := set(md); err != nil {
		end()
		return nil, status.Errorf(codes.Internal, "set the rate-limit fields: %v", err)
	}
	if e.answer.Status == 0 {
		return end, nil
	}
	defer end()
	return nil, refusal(e.answer.Outcome, retry)
}

// refusal returns the error of a call that ends at the limiter.
func refusal(o answer.Outcome, retry int64) error {
	switch o {
	case answer.Refused:
		s := status.New(codes.ResourceExhausted, fmt.Sprintf("too many requests: try again in %d s", retry))
		if detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(retry) * time.Second)}); err == nil {
			s = detailed
		}
		return s.Err()
	case answer.Unauthenticated:
		return status.Error(codes.Unauthenticated, "the call has no valid credential")
	case answer.Denied:
		return status.Error(codes.PermissionDenied, "the caller is denied")
	}
	return status.Error(codes.Unavailable, "the limits of this call could not be checked")
}

// A call is an identity.Request of a gRPC call.
type call struct{ context.Context }

func (c *call) Peer() netip.Addr {
	if p, ok := peer.FromContext(c.Context); ok {
		return identity.ParsePeer(p.Addr.String())
	}
	return netip.Addr{}
}

func (c *call) Header(name string) []string {
	return metadata.ValueFromIncomingContext(c.Context, name)
}

func (c *call) Host() string {
	if host := c.Header(":authority"); len(host) == 1 {
		return host[0]
	}
	return ""
}

func (c *call) RawQuery() string { return "" }

func (c *call) Certificate() *identity.Certificate {
	if p, ok := peer.FromContext(c.Context); ok {
		if tls, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			return identity.NewCertificate(tls.State.VerifiedChains)
		}
	}
	return nil
}

// Body has nothing: messages are protobuf, which no key source reads.
func (c *call) Body(int) []byte { return nil }
