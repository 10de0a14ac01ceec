package rls

import (
	"context"
	"math"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
)

// respond returns the response to a request that was decided.
func (s *Service) respond(ctx context.Context, r *pb.RateLimitRequest, c *call, start time.Time) *pb.RateLimitResponse {
	out := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK}
	statuses := make([]pb.RateLimitResponse_DescriptorStatus, len(c.matches))
	out.Statuses = make([]*pb.RateLimitResponse_DescriptorStatus, len(c.matches))
	resets := c.resets()
	for i := range c.matches {
		m, status := &c.matches[i], &statuses[i]
		out.Statuses[i] = status
		status.Code = pb.RateLimitResponse_OK
		switch {
		case m.unlimited:
			status.LimitRemaining = math.MaxUint32
		case m.group >= 0:
			s.fill(m, c, status, resets[m.group])
		}
	}
	outcome, denial := answer.Admitted, ""
	switch {
	case len(c.groups) == 0:
		outcome = answer.Unlimited
	case c.refused && s.options.Shadow:
		s.metrics.globalShadow()
	case c.refused:
		outcome, out.OverallCode = answer.Refused, pb.RateLimitResponse_OVER_LIMIT
		if all := c.decision.Standings(); s.options.Denial != nil && len(all) > 0 {
			denial = s.options.Denial(&c.decision, c.asks[c.scratch.Ask(&all[0])].Keys, &c.scratch)
		}
	}
	if s.options.Headers.On {
		out.ResponseHeadersToAdd = s.headers(c, out, denial)
	}
	if s.options.Metadata {
		out.DynamicMetadata = metadata(r, c, out)
	}
	s.observe(ctx, c, outcome, denial, start)
	return out
}

// resets returns the seconds until the window of each group ends: 1 or more.
func (c *call) resets() (all [weir.MaxCharges]int64) {
	standings := c.decision.Standings()
	for i := range standings {
		all[c.scratch.Ask(&standings[i])] = max(standings[i].Reset-c.decision.Now, 1)
	}
	return all
}

// fill writes the status of a descriptor that a limit applies to.
func (s *Service) fill(m *match, c *call, status *pb.RateLimitResponse_DescriptorStatus, reset int64) {
	status.CurrentLimit = m.current
	status.DurationUntilReset = &durationpb.Duration{Seconds: reset}
	counted := s.options.CountRefused || !c.refused
	s.metrics.count(m, counted, s.options.NearRatio)
	switch {
	case m.over && m.mode != shadow:
		status.Code = pb.RateLimitResponse_OVER_LIMIT
	case m.over:
	case counted:
		status.LimitRemaining = uint32(m.limit - m.after)
	default: // another descriptor refused, so this one keeps its units
		status.LimitRemaining = uint32(m.limit - (m.after - m.upTo))
	}
}

// headers returns the fields of the descriptor that is over its limit, the last of several, or else
// of the one with the least left. Descriptors in shadow mode are invisible.
func (s *Service) headers(c *call, out *pb.RateLimitResponse, denial string) []*core.HeaderValue {
	binds := -1
	for i := range c.matches {
		m := &c.matches[i]
		switch {
		case m.group < 0 || m.mode == shadow:
		case m.over && m.mode == enforced:
			binds = i
		case binds >= 0 && c.matches[binds].over && c.matches[binds].mode == enforced:
		case binds < 0 || out.Statuses[i].LimitRemaining < out.Statuses[binds].LimitRemaining:
			binds = i
		}
	}
	if binds < 0 {
		return nil
	}
	h, status := &s.options.Headers, out.Statuses[binds]
	var all []*core.HeaderValue
	add := func(name, value string) {
		if name != "" && value != "" {
			all = append(all, &core.HeaderValue{Key: name, Value: value})
		}
	}
	add(h.Limit, strconv.FormatUint(uint64(status.CurrentLimit.RequestsPerUnit), 10))
	add(h.Remaining, strconv.FormatUint(uint64(status.LimitRemaining), 10))
	add(h.Reset, strconv.FormatInt(status.DurationUntilReset.Seconds, 10))
	add(h.Denial, denial)
	return all
}
