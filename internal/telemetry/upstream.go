package telemetry

import (
	"cmp"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// An Upstream is the state of one address of the upstream: see upstream.State. Address is a label,
// so it is configured by the operator and contains only a scheme, a host and a port.
type Upstream struct {
	Site     string // the host of the requests that it gets, as a route names it; empty: all others
	Address  string
	Well     bool
	Busy     int
	Kept     int
	Failures uint64
}

// The families of malformed requests, of certificates and of the upstream.
var (
	descMalformed = prometheus.NewDesc("weir_malformed_requests_total",
		"Request heads that the fast engine rejected, because they are ambiguous or not HTTP, by the status of the answer. They count against no limit and are not in the access log. Those that net/http rejects (--engine std, traces) are not included.", []string{"status"}, nil)
	descUnanswered = prometheus.NewDesc("weir_upstream_unanswered_total",
		"Requests without an answer of the upstream, or with one that could not be forwarded, by the status of the answer: 504 after a time-out, 502 otherwise.", []string{"site", "status"}, nil)
	descUpstreamUp = prometheus.NewDesc("weir_upstream_up",
		"1 while the address is in use; 0 from a failure until it answers again, and while it fails its health check: meanwhile other addresses are preferred, and it is probed from time to time.", []string{"site", "upstream"}, nil)
	descUpstreamBusy = prometheus.NewDesc("weir_upstream_requests_in_flight",
		"Requests in flight to the address, including websockets.", []string{"site", "upstream"}, nil)
	descUpstreamKept = prometheus.NewDesc("weir_upstream_connections_kept",
		"Idle connections to the address.", []string{"site", "upstream"}, nil)
	descUpstreamFailures = prometheus.NewDesc("weir_upstream_failures_total",
		"Failures that counted against the address: one for an outage, and one for each probe that fails during it.", []string{"site", "upstream"}, nil)
	descCertificate = prometheus.NewDesc("weir_certificate_expires_timestamp_seconds",
		"When the TLS certificate expires, in Unix time. name is the first host that it is for; of several certificates of one name, it is the first that expires.", []string{"name"}, nil)
	descRedirects = prometheus.NewDesc("weir_redirect_requests_total",
		"Requests at the listener of --redirect, by the answer: redirected to https, challenge (of the authority of --acme), or rejected, such as for a host that is not served. They count against no limit and are not in the access log.", []string{"answer"}, nil)
)

// gatewayDescs returns the descriptions of those families.
func gatewayDescs() []*prometheus.Desc {
	return []*prometheus.Desc{descMalformed, descUnanswered, descUpstreamUp, descUpstreamBusy, descUpstreamKept, descUpstreamFailures, descCertificate, descRedirects}
}

// collectGateway collects those families.
func (s *Sources) collectGateway(to chan<- prometheus.Metric) {
	if s.Malformed != nil {
		for status, n := range s.Malformed() {
			to <- prometheus.MustNewConstMetric(descMalformed, prometheus.CounterValue, float64(n), strconv.Itoa(status))
		}
	}
	if s.Unanswered != nil {
		for site, counted := range s.Unanswered() {
			for status, n := range counted {
				to <- prometheus.MustNewConstMetric(descUnanswered, prometheus.CounterValue, float64(n), cmp.Or(site, "*"), strconv.Itoa(status))
			}
		}
	}
	if s.Certificates != nil {
		for name, end := range s.Certificates() {
			to <- prometheus.MustNewConstMetric(descCertificate, prometheus.GaugeValue, float64(end.Unix()), name)
		}
	}
	if s.Redirects != nil {
		for answered, n := range s.Redirects() {
			to <- prometheus.MustNewConstMetric(descRedirects, prometheus.CounterValue, float64(n), answered)
		}
	}
	if s.Upstreams == nil {
		return
	}
	for _, u := range s.Upstreams() {
		site := cmp.Or(u.Site, "*")
		gauge := func(d *prometheus.Desc, v float64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, site, u.Address)
		}
		gauge(descUpstreamUp, boolValue(u.Well))
		gauge(descUpstreamBusy, float64(u.Busy))
		gauge(descUpstreamKept, float64(u.Kept))
		to <- prometheus.MustNewConstMetric(descUpstreamFailures, prometheus.CounterValue, float64(u.Failures), site, u.Address)
	}
}
