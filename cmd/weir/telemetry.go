package main

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/internal/telemetry"
	"github.com/weirlimit/weir/memstore"
)

// receivers are told of what happens, one after the other. Each of them must not block, and must not keep what it is given.
type receivers struct {
	decisions    []func(httplimit.Observation)
	shadows      []func(weir.Shadowed)
	candidates   []func(weir.Compared)
	takes        []func(time.Duration, error)
	storeChanges []func(weir.StoreEvent)
}

// each returns one function that tells all; nil where there is nobody to tell.
func each[T any](all []func(T)) func(T) {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return func(what T) {
		for _, tell := range all {
			tell(what)
		}
	}
}

// hearDecider puts the receivers into the options of a Decider, after what is there already.
func (r *receivers) hearDecider(o *weir.Options) {
	o.OnShadow, o.OnCandidate = each(r.shadows), each(r.candidates)
	if len(r.takes) > 0 {
		o.OnTake = func(took time.Duration, err error) {
			for _, tell := range r.takes {
				tell(took, err)
			}
		}
	}
	if o.OnStoreFailure != nil {
		r.storeChanges = append([]func(weir.StoreEvent){o.OnStoreFailure}, r.storeChanges...)
	}
	o.OnStoreFailure = each(r.storeChanges)
}

// openMetrics makes the metrics, and has them told of everything.
func (e *edge) openMetrics(now func() time.Time) {
	b := thisBuild()
	e.metrics = telemetry.New(telemetry.Options{Build: telemetry.Build{Version: b.Version, Revision: b.Revision, Go: b.Go}, Now: now})
	r := &e.receivers
	r.decisions = append(r.decisions, e.metrics.Observe)
	r.shadows = append(r.shadows, e.metrics.Shadow)
	r.candidates = append(r.candidates, e.metrics.Candidate)
	r.takes = append(r.takes, e.metrics.StoreTake)
	r.storeChanges = append(r.storeChanges, e.metrics.StoreEvent)
}

// tableOf tells metrics of a table.
func tableOf(s *memstore.Store) func() telemetry.Table {
	return func() telemetry.Table {
		st := s.Stats()
		return telemetry.Table{Keys: st.Keys, Capacity: st.Capacity, Bytes: st.Bytes, Memory: st.Memory, Shared: st.Shared}
	}
}

// bindMetrics has scrapes ask about everything that is open by now.
func (e *edge) bindMetrics(policy *live.Policy) {
	s := &e.figures
	s.Policy, s.Health, s.InFlight = e.decider.Policy, e.decider.Health, e.gateway.InFlight
	if e.gateway.Fast() {
		s.Malformed = e.gateway.Malformed
	}
	if e.gateway.Upstreams() != nil {
		s.Unanswered, s.Upstreams = e.gateway.Unanswered, e.upstreams
	}
	s.PolicyState = func() telemetry.PolicyState { return policyState(policy.State()) }
	s.Candidate = func() (weir.Policy, bool) {
		state, ok := policy.Candidate()
		return state.Policy, ok && state.Source != ""
	}
	s.CandidateState = func() (telemetry.PolicyState, bool) {
		state, ok := policy.Candidate()
		return policyState(state), ok
	}
	e.metrics.Bind(*s)
}

// upstreams tells metrics how the upstream's addresses are doing.
func (e *edge) upstreams() []telemetry.Upstream {
	states := e.gateway.Upstreams()
	all := make([]telemetry.Upstream, len(states))
	for i, s := range states {
		all[i] = telemetry.Upstream{Address: s.Address.String(), Well: s.Well, Busy: s.Busy, Kept: s.Kept, Failures: s.Failures}
		if !e.gateway.Fast() {
			all[i].Kept = -1 // net/http does not say
		}
	}
	return all
}

func policyState(s live.State) telemetry.PolicyState {
	return telemetry.PolicyState{Version: s.Version, Source: s.Source, Loaded: s.Since, Tried: s.Last.At, OK: s.Last.OK}
}

// mostFlush bounds the wait, at the end, for a collector to take the last spans.
const mostFlush = 3 * time.Second

// openTracer puts a tracer around the gateway, where one was asked for.
func (e *edge) openTracer(f *serveFlags, o *gateway.Options) error {
	if f.tracing == nil {
		return nil
	}
	t := *f.tracing
	t.Version, t.Log = thisBuild().Version, o.Log
	t.Trusts = func(r *http.Request) bool { return peerIn(r.RemoteAddr, f.trustedProxies) }
	tracer, err := telemetry.NewTracer(t)
	if err != nil {
		return cli.Fail(err, "")
	}
	e.closers = append(e.closers, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), mostFlush)
		defer cancel()
		return tracer.Close(ctx)
	})
	e.tracesLine = t.Endpoint.Redacted()
	e.receivers.decisions = append(e.receivers.decisions, tracer.Observe)
	o.Wrap, o.WrapTransport = tracer.Wrap, tracer.WrapTransport
	return nil
}

// peerIn says whether an address with a port is of one of the networks.
func peerIn(addr string, networks []netip.Prefix) bool {
	peer, err := netip.ParseAddrPort(addr)
	return err == nil && slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(peer.Addr().Unmap().WithZone("")) })
}
