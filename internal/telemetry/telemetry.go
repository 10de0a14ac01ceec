// Package telemetry tells operators' tools what the edge does: metrics for Prometheus, traces for a collector of OpenTelemetry.
// Neither ever names a caller, and the values of labels come from the policy, from the command line or from fixed sets: nothing that
// a caller sends can make a series.
//
//	telemetry.go  Metrics: what people call
//	observe.go    a decision, a shadow, a comparison → counts
//	count.go      counts that cores do not share, found by pointer
//	latency.go    the histogram of decisions
//	store.go      what a store that can fail does
//	state.go      figures that are asked for when somebody scrapes
//	upstream.go   likewise: of the backend's addresses, and of what is no request
//	listener.go   connections
//	trace.go      spans around the gateway      redact.go  what of them is told      otlp.go  to whom
package telemetry

import (
	"cmp"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirlimit/weir"
)

// Options are the settings of Metrics; the zero value is useful.
type Options struct {
	// Build is what weir_build_info says.
	Build Build

	// Keep is how long the series of a limiter or a window is told after the policy has lost it; 0 means 15 minutes.
	Keep time.Duration

	// Now is the clock by which series are kept; nil means time.Now.
	Now func() time.Time
}

// A Build says which Weir this is.
type Build struct{ Version, Revision, Go string }

// Sources are asked at each scrape; what is nil is not told. They must not block for long, and may be asked by several
// goroutines at a time.
type Sources struct {
	Policy    func() weir.Policy         // the policy in force
	Candidate func() (weir.Policy, bool) // the candidate policy; false: there is none
	Health    func() weir.Health         // the store's
	Table     func() Table               // of the embedded store, or the one that counts while a shared one does not answer
	Shared    func() Shared              // of a shared store
	InFlight  func() int64               // requests under way

	Malformed  func() map[int]int64 // what was no request, so far, by the status of the answer
	Unanswered func() map[int]int64 // requests that the upstream did not answer, so far, likewise
	Upstreams  func() []Upstream    // its addresses, each once

	PolicyState    func() PolicyState         // where the policy in force comes from
	CandidateState func() (PolicyState, bool) // likewise; false: there is none
}

// Metrics count what they are told, and tell it in a registry of their own. They are safe for concurrent use.
type Metrics struct {
	keep     time.Duration
	now      func() time.Time
	registry *prometheus.Registry
	sources  atomic.Pointer[Sources]

	lanes      *lanes
	decisions  family[*weir.Window]
	fallbacks  family[*weir.Limiter]
	shadows    family[*weir.Limiter]
	candidates family[*weir.Limiter]
	latency    latency

	store       storeMetrics
	connections connectionMetrics
}

// New returns Metrics that have counted nothing.
func New(o Options) *Metrics {
	m := &Metrics{
		keep:        cmp.Or(o.Keep, 15*time.Minute),
		now:         o.Now,
		registry:    prometheus.NewPedanticRegistry(),
		lanes:       newLanes(),
		store:       newStoreMetrics(),
		connections: newConnectionMetrics(),
	}
	if m.now == nil {
		m.now = time.Now
	}
	m.sources.Store(new(Sources))
	n := m.lanes.n
	m.decisions.init(n)
	m.fallbacks.init(n)
	m.shadows.init(n)
	m.candidates.init(n)
	m.latency.init(n)

	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_build_info", Help: "Which Weir this is; always 1.",
		ConstLabels: prometheus.Labels{"version": o.Build.Version, "revision": o.Build.Revision, "goversion": o.Build.Go},
	})
	build.Set(1)
	m.registry.MustRegister(build, counted{m}, asked{m},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(m.store.all()...)
	m.registry.MustRegister(m.connections.all()...)
	return m
}

// Bind says whom to ask at each scrape from now on.
func (m *Metrics) Bind(s Sources) { m.sources.Store(&s) }

// Gatherer gathers every family, for whoever wants them without HTTP.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Handler answers a scrape. It is for operators only: whoever serves it asks who they are.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: mostScrapes})
}

// mostScrapes bounds the scrapes at a time; more are answered 503.
const mostScrapes = 4
