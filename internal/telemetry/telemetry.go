// Package telemetry exports metrics for Prometheus and traces for an OpenTelemetry collector.
// Neither contains anything that identifies a caller. Label values come from the policy, the
// command line or fixed sets, so nothing that a caller sends can create a series.
//
//	telemetry.go  Metrics: the API
//	observe.go    counts decisions, shadow decisions and candidate comparisons
//	requests.go   counts requests by site, limiter and status, and times them
//	settled.go    counts reservations, what became of them, and slots
//	count.go      counters split by core, found by pointer
//	latency.go    the histogram of decision times
//	store.go      takes and outages of a store that can fail
//	state.go      figures that are read at each scrape
//	upstream.go   likewise, for the upstream's addresses and malformed requests
//	listener.go   counts connections
//	trace.go      spans around the gateway
//	redact.go     removes what must not be exported from spans
//	otlp.go       posts spans to a collector
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
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
)

// Options are the settings of Metrics; the zero value is useful.
type Options struct {
	// Build is the content of weir_build_info.
	Build Build

	// Keep is how long the series of a limiter or a window is exported after it leaves the policy.
	// 0 means 15 minutes.
	Keep time.Duration

	// Now is the clock for Keep; nil means time.Now.
	Now func() time.Time
}

// A Build identifies a build of Weir.
type Build struct{ Version, Revision, Go string }

// Sources are functions that each scrape calls. The families of a nil function are left out. The
// functions must not block for long, and must be safe for concurrent use.
type Sources struct {
	Policy    func() weir.Policy         // the policy in force
	Candidate func() (weir.Policy, bool) // the candidate policy; false if there is none
	Health    func() failover.Health     // the health of the store
	// of the embedded store, or of the fallback store behind a shared one
	Table    func() memstore.Stats
	Shared   func() redisstore.Stats // of a shared store
	InFlight func() int64            // requests under way

	Events func() map[string]int64 // total events, by what became of them; from a fixed set

	Malformed func() map[int]int64 // total malformed requests, by the status of the answer
	// total requests without an answer of the upstream, by Upstream.Site and the status of the
	// answer
	Unanswered func() map[string]map[int]int64
	Upstreams  func() []Upstream // the upstream's addresses, without duplicates

	// Certificates returns when the first TLS certificate of each name expires.
	Certificates func() map[string]time.Time

	// Redirects returns the total requests at the listener that redirects to https, by the answer,
	// from a fixed set. Nil: there is none.
	Redirects func() map[string]int64

	TokenFile func() TokenFileState // of --token-file

	PolicyState    func() PolicyState         // the origin of the policy in force
	CandidateState func() (PolicyState, bool) // likewise; false if there is no candidate
}

// Metrics count events and export them from a registry of their own. They are safe for concurrent
// use.
type Metrics struct {
	keep     time.Duration
	now      func() time.Time
	registry *prometheus.Registry
	sources  atomic.Pointer[Sources]

	lanes      *lanes
	decisions  family[*weir.Window]
	denials    family[string]
	fallbacks  family[string]
	shadows    family[string]
	candidates family[string]
	settled    family[string]
	latency    latency
	requests   requestFigures

	store       storeMetrics
	connections connectionMetrics
}

// Register adds the metrics of another part of the server, whose labels must not be what a caller
// can choose without bound. It returns an error if a name is taken.
func (m *Metrics) Register(c prometheus.Collector) error { return m.registry.Register(c) }

// New returns Metrics whose counts are zero.
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
	m.denials.init(n)
	m.fallbacks.init(n)
	m.shadows.init(n)
	m.candidates.init(n)
	m.settled.init(n)
	m.settled.inUse = isHeld
	m.latency.init(n, latencyBounds[:])
	m.requests.init(n)

	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_build_info", Help: "Which Weir this is; always 1.",
		ConstLabels: prometheus.Labels{"version": o.Build.Version, "revision": o.Build.Revision, "goversion": o.Build.Go},
	})
	build.Set(1)
	m.registry.MustRegister(build, countedCollector{m}, sourceCollector{m},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(m.store.all()...)
	m.registry.MustRegister(m.connections.all()...)
	return m
}

// Bind sets the functions that scrapes call from now on.
func (m *Metrics) Bind(s Sources) { m.sources.Store(&s) }

// Gatherer returns the registry, for use without HTTP.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Handler returns the handler of scrapes. It is for operators only and does not authenticate them:
// the caller has to.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}

// maxScrapes is the maximum number of concurrent scrapes; more are answered 503.
const maxScrapes = 4
