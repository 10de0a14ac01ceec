// Package rls is the door for Envoy's rate limit service, version 3, with the configuration and the
// answers of envoyproxy/ratelimit. docs/envoy.md lists the differences.
//
//	rls.go      Options, Service and New: one request in, one response out
//	limiters.go the limiters that count descriptors, and the bytes that they count by
//	match.go    the limit of each descriptor, and what is charged for it
//	decide.go   one take, or several if quotas are spent
//	answer.go   the response
//	metadata.go its dynamic metadata
//	metrics.go  the metrics of envoyproxy/ratelimit, by their names
//	follow.go   the configuration in force, which follows its files
//	door.go     the service over gRPC, with its health, and its drain
//	http.go     the service over HTTP: /json and /healthcheck
//	json.go     what is wrong with a body of /json
package rls

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/notice"
	"github.com/weirlimit/weir/internal/plaintext"
	"github.com/weirlimit/weir/internal/rls/config"
)

// Options are the settings of a Service. Store and Log are required.
type Options struct {
	Store weir.Store
	Log   *slog.Logger

	// Align is when windows begin: with their first request, or at full minutes, hours, ….
	Align weir.Align
	// CountRefused counts the hits of refused requests too, as envoyproxy/ratelimit does. By
	// default a refused request spends nothing.
	CountRefused bool
	// OnStoreFailure is what happens while the store does not answer. FailDeny answers with a gRPC
	// error, so that Envoy's failure_mode_deny decides.
	OnStoreFailure weir.FailureMode
	// Shadow never answers OVER_LIMIT for a request, whatever its descriptors are.
	Shadow bool
	// Quota treats all descriptors as if they had quota_mode.
	Quota bool
	// Headers adds fields to the response; empty names are not sent.
	Headers Headers
	// Metadata adds dynamic metadata to the response.
	Metadata bool
	// NearRatio is the part of a limit from which hits count as near it; 0 means 0.8.
	NearRatio float32

	// Denial, if set, returns the id of a refusal.
	Denial func(d *weir.Decision, caller weir.Keys, scratch *weir.Scratch) string
	// Observe, if set, is called for every request. It must not block, and must not keep what the
	// Observation points to.
	Observe func(answer.Observation)
	// Now is the clock of latencies; nil means time.Now.
	Now func() time.Time
}

// Headers are the names of the fields that a response adds to what Envoy sends.
type Headers struct {
	On                      bool
	Limit, Remaining, Reset string
	Denial                  string // of the id of a refusal
}

// A Service answers requests. It is safe for concurrent use.
type Service struct {
	pb.UnimplementedRateLimitServiceServer
	options Options
	decider *weir.Decider
	rules   atomic.Pointer[rules] // nil: no configuration was loaded
	metrics *Metrics
	calls   sync.Pool
	failed  notice.Limit // the log lines about requests that are answered with an error
}

// New returns a Service without a configuration (see SetConfig).
func New(o Options) (*Service, error) {
	if o.Store == nil || o.Log == nil {
		return nil, errors.New("new rate limit service: Store and Log are required")
	}
	if o.NearRatio == 0 {
		o.NearRatio = 0.8
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	decider, err := weir.New(Policy(&o), o.Store, weir.Options{Sources: sources})
	if err != nil {
		return nil, err
	}
	s := &Service{options: o, decider: decider, metrics: newMetrics()}
	s.calls.New = func() any { return new(call) }
	return s, nil
}

// Metrics returns the metrics of the service.
func (s *Service) Metrics() *Metrics { return s.metrics }

// Close waits until nothing uses the store any more, or until ctx ends.
func (s *Service) Close(ctx context.Context) { s.decider.Close(ctx) }

// The errors of requests. The texts of the first three are those of envoyproxy/ratelimit, because
// programs compare them.
var (
	errNoConfig      = status.Error(codes.Unknown, "no rate limit configuration loaded")
	errNoDomain      = status.Error(codes.Unknown, "rate limit domain must not be empty")
	errNoDescriptors = status.Error(codes.Unknown, "rate limit descriptor list must not be empty")
	errStore         = status.Error(codes.Unavailable, "the store does not answer, and --rls-on-store-failure is error")
)

// ShouldRateLimit implements pb.RateLimitServiceServer.
func (s *Service) ShouldRateLimit(ctx context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	start := s.options.Now()
	c := s.calls.Get().(*call)
	out, err := s.answer(ctx, r, c, start)
	c.reset()
	s.calls.Put(c)
	s.metrics.served(s.options.Now().Sub(start))
	if err != nil {
		s.metrics.failed(err)
		s.noteFailed(ctx, r.GetDomain(), err)
	}
	return out, err
}

// noteFailed logs that a request was answered with an error, once a minute at most. Envoy forwards
// such a request, so a route whose requests all fail has no limit. An outage of the store has its
// own lines in the log. err has no values of descriptors, which can be credentials.
func (s *Service) noteFailed(ctx context.Context, domain string, err error) {
	if status.Code(err) == codes.Unavailable {
		return
	}
	log, others := s.failed.Allow(s.options.Now())
	if !log {
		return
	}
	from := ""
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	hint := "correct the domain or the descriptors of the request: Envoy sends those of its rate_limits"
	if err == errNoConfig {
		hint = "correct the configuration of --rls-config or --rls-xds; an earlier line of the log has why it was not loaded"
	}
	s.options.Log.Warn("a request to the rate limit service was answered with an error; Envoy forwards such requests without a limit, unless failure_mode_deny is true; further ones are logged once a minute",
		"domain", plaintext.Line(domain, maxShown), "peer", from, "error", status.Convert(err).Message(), "hint", hint, "others_since_the_last_line", others)
}

func (s *Service) answer(ctx context.Context, r *pb.RateLimitRequest, c *call, start time.Time) (*pb.RateLimitResponse, error) {
	rules := s.rules.Load()
	switch {
	case r.GetDomain() == "":
		return nil, errNoDomain
	case len(r.GetDescriptors()) == 0:
		return nil, errNoDescriptors
	case rules == nil:
		return nil, errNoConfig
	}
	if err := s.match(rules, r, c); err != nil {
		return nil, err
	}
	if err := s.decide(ctx, c); err != nil {
		s.observe(ctx, c, answer.Unavailable, "", start)
		return nil, err
	}
	return s.respond(ctx, r, c, start), nil
}

// observe calls Options.Observe.
func (s *Service) observe(ctx context.Context, c *call, outcome answer.Outcome, denial string, start time.Time) {
	if s.options.Observe == nil {
		return
	}
	o := answer.Observation{Door: doorName, Outcome: outcome, Latency: s.options.Now().Sub(start), Context: ctx}
	if all := c.decision.Standings(); len(all) > 0 {
		o.Limiter, o.Window, o.Decision = all[0].Limiter.Name, all[0].Window, &c.decision
		o.Denial, o.Who = denial, c.scratch.Who(&all[0])
		o.Caller = c.asks[c.scratch.Ask(&all[0])].Keys
	}
	s.options.Observe(o)
}

// doorName names the door in observations.
const doorName = "rls"

// rules are a configuration, and what the service has prepared of each rule.
type rules struct {
	*config.Config
	of map[*config.Rule]*rule
}
