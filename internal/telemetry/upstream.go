package telemetry

import (
	"maps"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// An Upstream is how one address of the backend is doing: upstream.State. Who runs the server has named it, with a scheme, a host and
// a port and nothing else: it is a label, of which there are as many as addresses.
type Upstream struct {
	Address  string
	Well     bool
	Busy     int
	Kept     int // negative: nobody knows
	Failures uint64
}

// The families of what stands before and behind the gateway.
var (
	descMalformed = prometheus.NewDesc("weir_malformed_requests_total",
		"Heads that the fast engine did not take, because two readers could understand them differently or they are no HTTP/1.1, by the status of the answer: each was no request, counts against nobody and is in no access log. What net/http refuses so (HTTP/2, --engine std) is not in here.", []string{"status"}, nil)
	descUnanswered = prometheus.NewDesc("weir_upstream_unanswered_total",
		"Requests that the upstream gave no answer to, or none that could be passed on, by what they were answered instead: 504 where it took too long, 502 otherwise.", []string{"status"}, nil)
	descUpstreamUp = prometheus.NewDesc("weir_upstream_up",
		"1 while the address is in use; 0 from a failure until it answers again: others are preferred meanwhile, and it is tried now and then.", []string{"upstream"}, nil)
	descUpstreamBusy = prometheus.NewDesc("weir_upstream_requests_in_flight",
		"Requests under way at the address, websockets included.", []string{"upstream"}, nil)
	descUpstreamKept = prometheus.NewDesc("weir_upstream_connections_kept",
		"Connections to the address that wait for another request, the fast engine's; those that net/http keeps (HTTP/2, --engine std) are not in here.", []string{"upstream"}, nil)
	descUpstreamFailures = prometheus.NewDesc("weir_upstream_failures_total",
		"Failures that counted against the address; an outage is one, and one more for each time that it is tried in vain.", []string{"upstream"}, nil)
)

// ways are the descriptions of those families.
func ways() []*prometheus.Desc {
	return []*prometheus.Desc{descMalformed, descUnanswered, descUpstreamUp, descUpstreamBusy, descUpstreamKept, descUpstreamFailures}
}

// collectWays tells of what stands before and behind the gateway.
func (s *Sources) collectWays(to chan<- prometheus.Metric) {
	for _, of := range [...]struct {
		desc *prometheus.Desc
		ask  func() map[int]int64
	}{{descMalformed, s.Malformed}, {descUnanswered, s.Unanswered}} {
		if of.ask == nil {
			continue
		}
		counted := of.ask()
		for _, status := range slices.Sorted(maps.Keys(counted)) {
			to <- prometheus.MustNewConstMetric(of.desc, prometheus.CounterValue, float64(counted[status]), strconv.Itoa(status))
		}
	}
	if s.Upstreams == nil {
		return
	}
	for _, u := range s.Upstreams() {
		gauge := func(d *prometheus.Desc, v float64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, u.Address)
		}
		gauge(descUpstreamUp, one(u.Well))
		gauge(descUpstreamBusy, float64(u.Busy))
		if u.Kept >= 0 {
			gauge(descUpstreamKept, float64(u.Kept))
		}
		to <- prometheus.MustNewConstMetric(descUpstreamFailures, prometheus.CounterValue, float64(u.Failures), u.Address)
	}
}
