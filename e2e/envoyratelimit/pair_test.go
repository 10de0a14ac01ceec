package envoyratelimit

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	theirconfig "github.com/envoyproxy/ratelimit/src/config"
	"github.com/envoyproxy/ratelimit/src/provider"
	"github.com/envoyproxy/ratelimit/src/redis"
	theirservice "github.com/envoyproxy/ratelimit/src/service"
	"github.com/envoyproxy/ratelimit/src/settings"
	"github.com/envoyproxy/ratelimit/src/stats"
	gostats "github.com/lyft/gostats"
	logrus "github.com/sirupsen/logrus"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/internal/rls"
	"github.com/weirlimit/weir/internal/rls/config"
	"github.com/weirlimit/weir/redisstore"
)

// A place is one Redis with a clock of its own, in which both services count.
type place struct {
	clock *redistest.Clock
	store weir.Store
	stats stats.Manager
	redis redis.Client
	own   map[ours]*rls.Service
}

// ours are the settings of our service.
type ours struct {
	align   weir.Align
	counted bool
}

func newPlace(t *testing.T) *place {
	t.Helper()
	t.Setenv("LIMIT_RESPONSE_HEADERS_ENABLED", "true")
	logrus.SetLevel(logrus.PanicLevel)
	server, clock := redistest.StartWithClock(t)
	p := &place{clock: clock, own: map[ours]*rls.Service{}}
	// Noon: no window of another unit begins in the same second.
	clock.Advance(time.Duration(36*time.Hour - time.Duration(clock.Now().UnixNano())%(24*time.Hour) + 90*time.Second))
	store, err := redisstore.New(t.Context(), redisstore.Options{Addresses: []string{server.Addr()}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	p.store = store
	null := gostats.NewStore(gostats.NewNullSink(), false)
	p.stats = stats.NewStatManager(null, settings.NewSettings())
	p.redis = redis.NewClientImpl(null, false, "", "tcp", "SINGLE", server.Addr(), 1, 0, 0, nil, false, nil, 10*time.Second, "WAIT", "")
	t.Cleanup(func() { _ = p.redis.Close() })
	return p
}

// UnixNow implements their utils.TimeSource.
func (p *place) UnixNow() int64 { return p.clock.Now().Unix() }

// A source gives their service one configuration.
type source chan provider.ConfigUpdateEvent

func (s source) ConfigUpdateEvent() <-chan provider.ConfigUpdateEvent { return s }
func (source) Stop()                                                  {}

type loaded struct{ config theirconfig.RateLimitConfig }

func (l loaded) GetConfig() (theirconfig.RateLimitConfig, any) { return l.config, nil }

// theirs returns their service with a configuration, or why they refuse it.
func (p *place) theirs(text string) (s pb.RateLimitServiceServer, refused error) {
	defer func() {
		if problem := recover(); problem != nil {
			s, refused = nil, fmt.Errorf("%v", problem)
		}
	}()
	read := theirconfig.NewRateLimitConfigImpl([]theirconfig.RateLimitConfigToLoad{
		{Name: "edge.yaml", ConfigYaml: theirconfig.ConfigFileContentToYaml("edge.yaml", text)},
	}, p.stats, false)
	from := make(source, 1)
	from <- loaded{read}
	const jitter = 0
	cache := redis.NewFixedRateLimitCacheImpl(p.redis, nil, p, rand.New(rand.NewSource(1)), jitter, nil, 0.8, "theirs_", p.stats, false)
	return ratelimitService(cache, from, p), nil
}

// weirs returns our service with a configuration, or why we refuse it.
func (p *place) weirs(text string, o ours) (*rls.Service, error) {
	s := p.own[o]
	if s == nil {
		var err error
		s, err = rls.New(rls.Options{
			Store: p.store, Log: slog.New(slog.DiscardHandler), Align: o.align, CountRefused: o.counted,
			Headers: rls.Headers{On: true, Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"},
		})
		if err != nil {
			return nil, err
		}
		p.own[o] = s
	}
	c, err := config.Parse([]config.File{{Name: "edge.yaml", Text: []byte(text)}}, config.Options{})
	if err != nil {
		return nil, err
	}
	return s, s.SetConfig(c)
}

func ratelimitService(cache interface {
	DoLimit(context.Context, *pb.RateLimitRequest, []*theirconfig.RateLimit) []*pb.RateLimitResponse_DescriptorStatus
	Flush()
}, from source, p *place) pb.RateLimitServiceServer {
	return theirservice.NewService(cache, from, p.stats, nil, p, false, false, false)
}

// answer returns the answer of a service as a text that has everything of it.
func answer(s pb.RateLimitServiceServer, r *pb.RateLimitRequest) (text string) {
	defer func() {
		if problem := recover(); problem != nil {
			text = fmt.Sprint("panic: ", problem)
		}
	}()
	out, err := s.ShouldRateLimit(context.Background(), r)
	if err != nil {
		return "error: " + err.Error()
	}
	var b strings.Builder
	b.WriteString(out.OverallCode.String())
	for _, one := range out.Statuses {
		fmt.Fprintf(&b, " %v/%d", one.Code, one.LimitRemaining)
		if l := one.CurrentLimit; l != nil {
			fmt.Fprintf(&b, "/%d-%v", l.RequestsPerUnit, l.Unit)
			if l.Name != "" {
				b.WriteString("-" + l.Name)
			}
			fmt.Fprintf(&b, "/%ds", one.DurationUntilReset.GetSeconds())
		}
	}
	for _, f := range out.ResponseHeadersToAdd {
		fmt.Fprintf(&b, " %s=%s", strings.TrimPrefix(f.Key, "RateLimit-"), f.Value)
	}
	return b.String()
}

// requestOf returns the request that a text describes: descriptors with bars between them, and in
// each "a=x b +2 =5-HOUR" for two entries, 2 hits and an override; "*3" is the request's own hits.
func requestOf(domain, text string) *pb.RateLimitRequest {
	r := &pb.RateLimitRequest{Domain: domain}
	for _, part := range strings.Split(text, "|") {
		d := new(ratelimit.RateLimitDescriptor)
		for _, word := range strings.Fields(part) {
			var n uint64
			var unit string
			switch {
			case scan(word, "+%d", &n):
				d.HitsAddend = wrapperspb.UInt64(n)
			case scan(word, "*%d", &n):
				r.HitsAddend = uint32(n)
			case scan(word, "=%d-%s", &n, &unit):
				d.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(n), Unit: typev3.RateLimitUnit(typev3.RateLimitUnit_value[unit])}
			default:
				key, value, _ := strings.Cut(word, "=")
				d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: key, Value: value})
			}
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

func scan(word, form string, into ...any) bool {
	n, err := fmt.Sscanf(word, form, into...)
	return err == nil && n == len(into)
}
