package rls

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/internal/rls/config"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/storetest"
)

const edge = `domain: edge
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 3}, descriptors: [{key: path, rate_limit: {unit: hour, requests_per_unit: 1}}]}
  - {key: tight, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: zero, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: tried, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: q1, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: q2, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: base, rate_limit: {unit: minute, requests_per_unit: 1, name: base}}
  - {key: vip, rate_limit: {unit: minute, requests_per_unit: 9, replaces: [{name: base}]}}
  - {key: dir, value: a/*, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 2}}
`

func newService(t testing.TB, o Options) *Service {
	t.Helper()
	store, err := memstore.New(memstore.Options{Now: storetest.StartManualClock().Now})
	if err != nil {
		t.Fatal(err)
	}
	if o.Store = store; o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse([]config.File{{Name: "edge.yaml", Text: []byte(edge)}}, config.Options{})
	if err == nil {
		err = s.SetConfig(c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// of returns a descriptor: "user=a path=/ +2 =5/minute" has two entries, 2 hits and an override.
func of(text string) *ratelimit.RateLimitDescriptor {
	d := new(ratelimit.RateLimitDescriptor)
	for _, word := range strings.Fields(text) {
		var n uint64
		var unit string
		if _, err := fmt.Sscanf(word, "+%d", &n); err == nil {
			d.HitsAddend = wrapperspb.UInt64(n)
			continue
		}
		if _, err := fmt.Sscanf(word, "=%d/%s", &n, &unit); err == nil {
			d.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(n), Unit: typev3.RateLimitUnit(typev3.RateLimitUnit_value[unit])}
			continue
		}
		key, value, _ := strings.Cut(word, "=")
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

// ask returns the answer to a request: its code, and for each status its code and what is left.
func ask(t testing.TB, s *Service, descriptors ...string) string {
	t.Helper()
	r := &pb.RateLimitRequest{Domain: "edge"}
	for _, d := range descriptors {
		r.Descriptors = append(r.Descriptors, of(d))
	}
	out, err := s.ShouldRateLimit(t.Context(), r)
	if err != nil {
		return err.Error()
	}
	text := out.OverallCode.String()
	for _, status := range out.Statuses {
		text += fmt.Sprintf(" %v/%d", status.Code, status.LimitRemaining)
	}
	return text
}

func TestRequestsAreAnswered(t *testing.T) {
	for name, steps := range map[string][][2]string{
		"depth":           {{"user=a path=/", "OK OK/0"}, {"user=a path=/", "OVER_LIMIT OVER_LIMIT/0"}, {"user=a", "OK OK/2"}, {"user=a path=/ x=y", "OK OK/0"}},
		"unknown":         {{"nothing=1", "OK OK/0"}, {"free=1", "OK OK/4294967295"}},
		"zero":            {{"zero=1", "OVER_LIMIT OVER_LIMIT/0"}, {"zero=1 +0", "OK OK/0"}},
		"look":            {{"user=a +0", "OK OK/3"}, {"user=a +2", "OK OK/1"}, {"user=a +2", "OVER_LIMIT OVER_LIMIT/0"}, {"user=a", "OK OK/0"}},
		"look, and spend": {{"user=a +3", "OK OK/0"}, {"user=a =1/MINUTE +0|tight=1", "OVER_LIMIT OVER_LIMIT/0 OK/1"}, {"user=a +0|tight=1", "OK OK/0 OK/0"}, {"user=a =1/MINUTE +0", "OVER_LIMIT OVER_LIMIT/0"}},
		"huge":            {{"user=a +4294967295", "OVER_LIMIT OVER_LIMIT/0"}, {"user=a +18446744073709551615", "OVER_LIMIT OVER_LIMIT/0"}, {"user=a", "OK OK/2"}, {"tried=1 +18446744073709551615", "OK OK/0"}, {"tried=1 +18446744073709551615", "OK OK/0"}},
		"all or none":     {{"user=a|tight=1", "OK OK/2 OK/0"}, {"user=a|tight=1", "OVER_LIMIT OK/2 OVER_LIMIT/0"}, {"user=a", "OK OK/1"}},
		"twice":           {{"user=a|user=a", "OK OK/2 OK/1"}, {"user=a|user=a", "OVER_LIMIT OK/1 OVER_LIMIT/0"}, {"user=a", "OK OK/0"}},
		"shadow":          {{"tried=1", "OK OK/0"}, {"tried=1", "OK OK/0"}, {"tried=1|user=a", "OK OK/0 OK/2"}},
		"quotas":          {{"q1=1|q2=1", "OK OK/0 OK/1"}, {"q1=1|q2=1", "OK OVER_LIMIT/0 OK/0"}, {"q1=1|q2=1", "OVER_LIMIT OVER_LIMIT/0 OVER_LIMIT/0"}},
		"nine, one count": {{strings.Repeat("user=a =20/MINUTE|", 8) + "user=a =20/MINUTE", "OK OK/19 OK/18 OK/17 OK/16 OK/15 OK/14 OK/13 OK/12 OK/11"}},
		"quota twice":     {{"q2=1|q2=1|q2=1", "OK OK/1 OK/0 OVER_LIMIT/0"}, {"q2=1", "OVER_LIMIT OVER_LIMIT/0"}},
		"quota, and limit": {
			{"q2=1|q2=1 =9/MINUTE", "OK OK/1 OK/7"}, {"q2=1|q2=1 =9/MINUTE", "OVER_LIMIT OVER_LIMIT/0 OK/7"},
			{"q1=1|q2=1|q2=1 =9/MINUTE", "OK OK/0 OVER_LIMIT/0 OK/5"}, {"q2=1 +0 =9/MINUTE", "OK OK/5"},
			{"q1=1|q2=1|q2=1 =9/MINUTE", "OVER_LIMIT OVER_LIMIT/0 OVER_LIMIT/0 OK/5"}, {"q2=1 =9/MINUTE +5", "OK OK/0"},
		},
		"replaces": {{"base=1", "OK OK/0"}, {"base=1|vip=1", "OK OK/0 OK/8"}},
		"shared":   {{"dir=a/x", "OK OK/1"}, {"dir=a/y", "OK OK/0"}, {"dir=a/z", "OVER_LIMIT OVER_LIMIT/0"}},
		"override": {{"user=a =1/MINUTE", "OK OK/0"}, {"user=a =1/MINUTE", "OVER_LIMIT OVER_LIMIT/0"}, {"user=a", "OK OK/1"}, {"user=a =5/MINUTE", "OK OK/2"}},
	} {
		s := newService(t, Options{})
		for i, step := range steps {
			if got := ask(t, s, strings.Split(step[0], "|")...); got != step[1] {
				t.Errorf("%s, step %d, %s: %s, want %s", name, i, step[0], got, step[1])
			}
		}
	}
}

func TestRefusedHitsCountIfThatIsAskedFor(t *testing.T) {
	s := newService(t, Options{CountRefused: true})
	for i, want := range []string{"OK OK/2 OK/0", "OVER_LIMIT OK/1 OVER_LIMIT/0", "OVER_LIMIT OK/0 OVER_LIMIT/0", "OVER_LIMIT OVER_LIMIT/0 OVER_LIMIT/0"} {
		if got := ask(t, s, "user=a", "tight=1"); got != want {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
	}
}

func TestWrongRequestsAreErrors(t *testing.T) {
	s := newService(t, Options{})
	for want, r := range map[string]*pb.RateLimitRequest{
		"rate limit domain must not be empty":                                                            {Descriptors: []*ratelimit.RateLimitDescriptor{of("user=a")}},
		"rate limit descriptor list must not be empty":                                                   {Domain: "edge"},
		"descriptors[1].limit.unit is YEAR: one of SECOND, MINUTE, HOUR, DAY, WEEK and MONTH is allowed": {Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{of("user=a"), of("user=a =1/YEAR")}},
		"descriptors[0].limit.unit is UNKNOWN: one of SECOND, ":                                          {Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{of("user=a =1/UNKNOWN")}},
		"descriptors[2].is_negative_hits is true: hits cannot be given back":                             {Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{of("user=a"), of("user=b"), {IsNegativeHits: true}}},
		"descriptors[0].limit.unit_multiplier is 2: a limit is for one unit": {Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{
			{Limit: &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: typev3.RateLimitUnit_MINUTE, UnitMultiplier: wrapperspb.UInt32(2)}},
		}},
	} {
		if _, err := s.ShouldRateLimit(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want an error with %q", r, err, want)
		}
	}
}

func TestStatusesAreComplete(t *testing.T) {
	s := newService(t, Options{})
	out, err := s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "edge", HitsAddend: 2, Descriptors: []*ratelimit.RateLimitDescriptor{of("user=a")}})
	if err != nil {
		t.Fatal(err)
	}
	status := out.Statuses[0]
	if status.CurrentLimit.RequestsPerUnit != 3 || status.CurrentLimit.Unit != pb.RateLimitResponse_RateLimit_MINUTE || status.LimitRemaining != 1 || status.DurationUntilReset.Seconds != 60 {
		t.Error(status)
	}
}
