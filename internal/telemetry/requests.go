package telemetry

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A Request is a request whose answer is complete. Site and Limiter are labels: they are configured
// by the operator.
type Request struct {
	Site     string // empty: no upstream serves its host
	Limiter  string // empty: none
	Status   int
	Duration time.Duration // from its head to the end of its answer
	Upstream time.Duration // of it, until the head of the upstream's answer; 0: none was asked
}

// statusClasses are the slots of a series of requests, as label values.
var statusClasses = [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}

// maxRequestSeries is how many pairs of a site and a limiter have a series of their own. Requests
// of further pairs count under their site, with otherLimiters.
const maxRequestSeries = 2048

// otherLimiters is no name that a limiter can have.
const otherLimiters = "(others)"

// A pair finds a series without a lock.
type pair struct{ site, limiter string }

// requestFigures are the figures of requests whose answers are complete.
type requestFigures struct {
	lanes  int
	counts family[pair]
	times  atomic.Pointer[map[string]*siteTimes] // by site; replaced, never changed
	mu     sync.Mutex                            // held while times is replaced
}

// siteTimes are the histograms of one site.
type siteTimes struct{ whole, upstream latency }

func (f *requestFigures) init(lanes int) {
	f.lanes = lanes
	f.counts.init(lanes)
	f.times.Store(&map[string]*siteTimes{})
}

// Served counts a request whose answer is complete. It does not allocate if it has seen the site
// and the limiter before.
func (m *Metrics) Served(r Request) {
	lane := m.lanes.get()
	last := &lane.last
	if found := m.requests.counts.found.Load(); last.found != found || last.site != r.Site || last.limiter != r.Limiter {
		m.requests.look(last, r.Site, r.Limiter)
	}
	if class := r.Status/100 - 1; class >= 0 && class < len(statusClasses) {
		last.counts.cells[lane.i].n[class].Add(1)
	}
	last.times.whole.observe(lane.i, r.Duration)
	if r.Upstream > 0 {
		last.times.upstream.observe(lane.i, r.Upstream)
	}
	m.lanes.put(lane)
}

// A lastServed is where the last request of a lane was counted. The next one mostly has the same
// site and limiter. It is valid while found is the family's: a series that is deleted is not found
// again.
type lastServed struct {
	pair
	found  *map[pair]*series
	counts *series
	times  *siteTimes
}

// look sets last to the series of a site and a limiter.
func (f *requestFigures) look(last *lastServed, site, limiter string) {
	// read before the series is looked for: if it is replaced meanwhile, the next request looks
	// again
	last.found = f.counts.found.Load()
	last.counts, last.times = f.series(site, limiter), f.timesOf(site)
	// the series has copies of both, unless it is that of the others
	if last.site = last.counts.site; last.limiter != limiter {
		if last.limiter = last.counts.limiter; last.limiter != limiter {
			last.limiter = strings.Clone(limiter)
		}
	}
}

// series returns the series of a site and a limiter.
func (f *requestFigures) series(site, limiter string) *series {
	if s := f.counts.find(pair{site, limiter}); s != nil {
		return s
	}
	site, limiter = strings.Clone(site), strings.Clone(limiter)
	n := names{site: site, limiter: limiter}
	if f.counts.size() >= maxRequestSeries && !f.counts.has(n) {
		n.limiter = otherLimiters
	}
	return f.counts.register(pair{site, limiter}, n)
}

// timesOf returns the histograms of a site. There are no more than sites.
func (f *requestFigures) timesOf(site string) *siteTimes {
	if t := (*f.times.Load())[site]; t != nil {
		return t
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	all := maps.Clone(*f.times.Load())
	t := all[site]
	if t == nil {
		t = new(siteTimes)
		t.whole.init(f.lanes, durationBounds[:])
		t.upstream.init(f.lanes, durationBounds[:])
		all[strings.Clone(site)] = t
		f.times.Store(&all)
	}
	return t
}

var (
	descRequests = prometheus.NewDesc("weir_requests_total",
		"Requests whose answer has ended, by the site that got them as --upstream names it, their limiter and the class of the status; a client that went away counts as 4xx (499 in the access log). The site * is that of all other hosts; it is empty for hosts that no upstream serves. Health checks that Weir answers are included. Beyond 2048 pairs the limiter is (others).", []string{"site", "limiter", "status"}, nil)
	descDuration = prometheus.NewDesc("weir_request_duration_seconds",
		"Time from the head of a request to the end of its answer, including websockets.", []string{"site"}, nil)
	descUpstreamTime = prometheus.NewDesc("weir_upstream_duration_seconds",
		"Time that the upstream took, from the wish for a connection to the head of its answer or its failure. Requests that did not get to the upstream are not included.", []string{"site"}, nil)
	requestDescs = [...]*prometheus.Desc{descRequests, descDuration, descUpstreamTime}
)

// collect collects the figures. enforced are the limiters in force.
func (f *requestFigures) collect(to chan<- prometheus.Metric, enforced map[names]bool, now time.Time, keep time.Duration) {
	inForce := f.counts.those(func(n names) bool {
		return n.limiter == "" || n.limiter == otherLimiters || enforced[names{limiter: n.limiter}]
	})
	for _, s := range f.counts.sweep(inForce, now, keep) {
		for i, class := range statusClasses {
			if n := s.total(i); n > 0 || class == "2xx" || class == "4xx" || class == "5xx" {
				to <- prometheus.MustNewConstMetric(descRequests, prometheus.CounterValue, float64(n), s.site, s.limiter, class)
			}
		}
	}
	for site, t := range *f.times.Load() {
		to <- t.whole.metric(descDuration, site)
		to <- t.upstream.metric(descUpstreamTime, site)
	}
}
