package edge

import (
	"net"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/internal/telemetry"
)

// openMetrics counts everything for Prometheus, which scrapes the admin listener, or the listener
// for metrics.
func openMetrics(o *observing) error {
	m, h := telemetry.New(telemetry.Options{Build: o.Build, Now: o.Now}), o.hooks
	h.decisions = append(h.decisions, m.Observe)
	h.shadows = append(h.shadows, m.Shadow)
	h.candidates = append(h.candidates, m.Candidate)
	h.settled = append(h.settled, m.Settled)
	h.held = append(h.held, m.Held)
	h.takes = append(h.takes, m.StoreTake)
	h.storeEvents = append(h.storeEvents, m.StoreEvent)
	h.listeners = append(h.listeners, func(name string, l net.Listener) net.Listener { return m.Listener(name, l) })
	h.gateway = append(h.gateway, func(g *gateway.Options) {
		g.Served = func(r gateway.Served) { m.Served(telemetry.Request(r)) }
	})
	h.admin = append(h.admin, func(a *admin.Options) { a.Metrics = m.Handler() })
	h.register = m.Register
	h.opened = append(h.opened, func(s *Server) {
		sources := s.sources()
		sources.Events = h.events
		m.Bind(sources)
	})
	return nil
}

// sources returns what a scrape reads of a server.
func (s *Server) sources() telemetry.Sources {
	g := s.public.gateway
	all := telemetry.Sources{
		Policy: s.counter.Policy, Health: s.counter.health, InFlight: s.front().InFlight,
		Certificates: g.Certificates,
		Table:        s.counter.store.table, Shared: s.counter.store.figures,
		PolicyState: func() telemetry.PolicyState { return policyState(s.policy.State()) },
		Candidate: func() (weir.Policy, bool) {
			state, ok := s.policy.Candidate()
			return state.Policy, ok && state.Source != ""
		},
		CandidateState: func() (telemetry.PolicyState, bool) {
			state, ok := s.policy.Candidate()
			return policyState(state), ok
		},
	}
	if s.rls != nil && !s.config.rlsAlone() {
		all.Policy = func() weir.Policy { return s.rls.policy(s.counter.Policy()) }
	}
	if file, ok := s.backend.tokens.(*tokenFile); ok {
		all.TokenFile = file.state
	}
	if s.redirect != nil {
		all.Redirects = g.Redirects
	}
	if g.Fast() {
		all.Malformed = g.Malformed
	}
	if g.Upstreams() != nil {
		all.Unanswered, all.Upstreams = s.public.unanswered, s.public.upstreams
	}
	return all
}

// unanswered returns how many requests of each site its upstream did not answer.
func (d *publicDoor) unanswered() map[string]map[int]int64 {
	all := make(map[string]map[int]int64)
	for _, s := range d.gateway.Upstreams() {
		all[s.Site] = s.Unanswered
	}
	return all
}

// upstreams returns the state of the upstream's addresses.
func (d *publicDoor) upstreams() []telemetry.Upstream {
	states := d.gateway.Upstreams()
	all := make([]telemetry.Upstream, len(states))
	for i, s := range states {
		all[i] = telemetry.Upstream{Site: s.Site, Address: s.Address.String(), Well: s.Well, Busy: s.Busy, Kept: s.Kept, Failures: s.Failures}
	}
	return all
}

func policyState(s live.State) telemetry.PolicyState {
	return telemetry.PolicyState{Version: s.Version, Source: s.Source, Loaded: s.Since, Tried: s.Last.At, OK: s.Last.OK}
}
