package rls

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/rls/config"
)

// maxSeries is the max number of descriptors with metrics. Values of requests can be among their
// names (detailed_metric), and callers choose those; what is beyond counts as "other".
const maxSeries = 20_000

// Metrics count what envoyproxy/ratelimit counts, under the names of its own mapping to Prometheus.
// They are a prometheus.Collector.
type Metrics struct {
	mu     sync.RWMutex
	series map[labels]*stat
	other  *stat

	requests, shadowed, noDomain atomic.Uint64
	storeErrors, serviceErrors   atomic.Uint64
	loaded, refused              atomic.Uint64
	latency                      prometheus.Histogram
}

// labels are the domain and the first two levels of a descriptor.
type labels struct{ domain, key1, key2 string }

// A stat is the counts of the descriptors with the same labels.
type stat struct{ total, over, near, within, shadow atomic.Uint64 }

func newMetrics() *Metrics {
	m := &Metrics{series: map[labels]*stat{}, other: new(stat)}
	m.series[labels{"other", "other", ""}] = m.other
	m.latency = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "ratelimit_service_response_time_seconds", Help: "Time to answer a request.",
		ConstLabels: method, Buckets: prometheus.ExponentialBuckets(0.00001, 4, 9),
	})
	return m
}

var method = prometheus.Labels{"grpc_method": "ShouldRateLimit"}

// of returns the counts of labels.
func (m *Metrics) of(l labels) *stat {
	m.mu.RLock()
	s := m.series[l]
	m.mu.RUnlock()
	if s != nil {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s = m.series[l]; s != nil {
		return s
	}
	if len(m.series) >= maxSeries {
		return m.other
	}
	s = new(stat)
	m.series[l] = s
	return s
}

// byPath returns the counts of a descriptor as the configuration has it.
func (m *Metrics) byPath(path []string) *stat {
	l := labels{domain: sanitized(path[0])}
	if len(path) > 1 {
		l.key1 = sanitized(path[1])
	}
	if len(path) > 2 {
		l.key2 = sanitized(path[2])
	}
	return m.of(l)
}

// byValue returns the counts of a descriptor as a request has it. root is that of its domain, or
// nil for an override, whose name has all values.
func (m *Metrics) byValue(domain string, d *ratelimit.RateLimitDescriptor, root *config.Node) *stat {
	path := []string{domain}
	entries := d.GetEntries()
	detailed := root == nil
	if root != nil {
		node := root
		for _, e := range entries {
			node, _ = node.Step(e.GetKey(), e.GetValue())
		}
		detailed = node.Rule.DetailedMetric
	}
	for node, i := root, 0; i < len(entries) && i < 2; i++ {
		e := entries[i]
		value := e.GetValue()
		if root != nil {
			var found config.Found
			node, found = node.Step(e.GetKey(), value)
			switch {
			case found == config.Wildcard && node.Share != "":
				value = node.Share
			case detailed || node.ValueToMetric:
			default:
				value = node.Value
			}
		}
		if value == "" {
			path = append(path, e.GetKey())
		} else {
			path = append(path, e.GetKey()+"_"+value)
		}
	}
	return m.byPath(path)
}

var separators = strings.NewReplacer(":", "_", "|", "_")

// sanitized returns a level of a name without the characters that separate names, as
// envoyproxy/ratelimit writes it.
func sanitized(name string) string {
	const most = 200
	if name = separators.Replace(strings.ToValidUTF8(name, "_")); len(name) > most {
		name = strings.ToValidUTF8(name[:most], "")
	}
	return name
}

// count adds a descriptor that was decided. counted means that its hits were counted.
func (x *Metrics) count(m *match, counted bool, ratio float32) {
	s := m.stat
	s.total.Add(m.hits)
	near := min(uint64(float32(m.limit)*ratio), m.limit) // rounding can exceed it
	if m.over {
		over := m.hits
		if m.before < m.limit {
			over = m.after - m.limit
			if counted {
				s.near.Add(m.limit - max(near, m.before))
			}
		}
		if !counted {
			over = m.hits
		}
		s.over.Add(over)
		if m.mode == shadow {
			s.shadow.Add(over)
		}
		return
	}
	if !counted {
		return
	}
	s.within.Add(m.hits)
	if m.after > near {
		s.near.Add(min(m.hits, m.after-near))
	}
}

func (m *Metrics) served(d time.Duration) {
	m.requests.Add(1)
	m.latency.Observe(d.Seconds())
}

func (m *Metrics) failed(err error) {
	if status.Code(err) == codes.Unavailable {
		m.storeErrors.Add(1)
	} else {
		m.serviceErrors.Add(1)
	}
}

func (m *Metrics) unknownDomain() { m.noDomain.Add(1) }
func (m *Metrics) globalShadow()  { m.shadowed.Add(1) }

// families are the counters of descriptors.
var families = [...]struct {
	desc *prometheus.Desc
	of   func(*stat) *atomic.Uint64
}{
	{family("total_hits", "Hits of requests."), func(s *stat) *atomic.Uint64 { return &s.total }},
	{family("over_limit", "Hits over the limit."), func(s *stat) *atomic.Uint64 { return &s.over }},
	{family("near_limit", "Hits near the limit."), func(s *stat) *atomic.Uint64 { return &s.near }},
	{family("within_limit", "Hits within the limit."), func(s *stat) *atomic.Uint64 { return &s.within }},
	{family("shadow_mode", "Hits over the limit in shadow mode."), func(s *stat) *atomic.Uint64 { return &s.shadow }},
}

func family(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("ratelimit_service_rate_limit_"+name, help, []string{"domain", "key1", "key2"}, nil)
}

// singles are the other counters.
var singles = [...]struct {
	desc *prometheus.Desc
	of   func(*Metrics) *atomic.Uint64
}{
	{prometheus.NewDesc("ratelimit_service_total_requests", "Requests.", nil, method), func(m *Metrics) *atomic.Uint64 { return &m.requests }},
	{prometheus.NewDesc("ratelimit_service_should_rate_limit_error", "Requests that were answered with an error.", nil, prometheus.Labels{"err_type": "redis_error"}), func(m *Metrics) *atomic.Uint64 { return &m.storeErrors }},
	{prometheus.NewDesc("ratelimit_service_should_rate_limit_error", "Requests that were answered with an error.", nil, prometheus.Labels{"err_type": "service_error"}), func(m *Metrics) *atomic.Uint64 { return &m.serviceErrors }},
	{prometheus.NewDesc("ratelimit_service_config_load_success", "Configurations that were loaded.", nil, nil), func(m *Metrics) *atomic.Uint64 { return &m.loaded }},
	{prometheus.NewDesc("ratelimit_service_config_load_error", "Configurations that were refused.", nil, nil), func(m *Metrics) *atomic.Uint64 { return &m.refused }},
	{prometheus.NewDesc("ratelimit_service_global_shadow_mode", "Requests that only global shadow mode admitted.", nil, nil), func(m *Metrics) *atomic.Uint64 { return &m.shadowed }},
	{prometheus.NewDesc("ratelimit_service_domain_not_found", "Requests of a domain without a configuration.", nil, nil), func(m *Metrics) *atomic.Uint64 { return &m.noDomain }},
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, f := range families {
		out <- f.desc
	}
	for _, s := range singles {
		out <- s.desc
	}
	m.latency.Describe(out)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for l, s := range m.series {
		for _, f := range families {
			if s == m.other && s.total.Load() == 0 {
				continue
			}
			out <- prometheus.MustNewConstMetric(f.desc, prometheus.CounterValue, float64(f.of(s).Load()), l.domain, l.key1, l.key2)
		}
	}
	for _, s := range singles {
		out <- prometheus.MustNewConstMetric(s.desc, prometheus.CounterValue, float64(s.of(m).Load()))
	}
	m.latency.Collect(out)
}
