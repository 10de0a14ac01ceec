package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A Table is how full the embedded store is: memstore.Stats.
type Table struct {
	Keys     int64 // entries held
	Capacity int64 // entries that fit
	Bytes    int64 // memory held
	Memory   int64 // its bound
	Shared   int64 // charges so far that were counted in a shared budget, because the table was full
}

// Shared is what a shared store was asked so far: redisstore.Stats.
type Shared struct {
	Asked      int64 // takes that were sent to it
	Remembered int64 // takes that were refused without asking it
	Emptied    int64 // how often it was found to have lost its counters
}

// A PolicyState says where a policy comes from, and what became of the last attempt to replace it.
type PolicyState struct {
	Version string // of its text
	Source  string // "contract", "file", "posted"
	Loaded  time.Time

	Tried time.Time // the last attempt; zero: there was none
	OK    bool      // whether it succeeded; without one it is not looked at
}

func policyDescs(which, of string) (d [4]*prometheus.Desc) {
	d[0] = prometheus.NewDesc("weir_"+which+"_info", "Which "+of+" there is; always 1.", []string{"version", "source"}, nil)
	d[1] = prometheus.NewDesc("weir_"+which+"_loaded_timestamp_seconds", "Since when the "+of+" has been what it is, in Unix time.", nil, nil)
	d[2] = prometheus.NewDesc("weir_"+which+"_last_reload_successful", "1 where the last attempt to replace the "+of+" succeeded, or there was none; 0 where the one before still holds.", nil, nil)
	d[3] = prometheus.NewDesc("weir_"+which+"_last_reload_timestamp_seconds", "When that attempt was, in Unix time; 0 where there was none.", nil, nil)
	return d
}

// The families whose figures somebody else has.
var (
	descPolicy    = policyDescs("policy", "policy")
	descCandidate = policyDescs("candidate", "candidate policy")

	descStoreUp = prometheus.NewDesc("weir_store_up",
		"1 while the store answers. While it does not, 0, each limiter does what its on_store_failure says.", nil, nil)
	descBreaker = prometheus.NewDesc("weir_store_breaker_open",
		"1 while the circuit breaker is open: requests do not wait for the store, and one a second tries whether it answers again.", nil, nil)
	descInFlight   = prometheus.NewDesc("weir_requests_in_flight", "Requests under way, websockets included.", nil, nil)
	descKeys       = prometheus.NewDesc("weir_table_keys", "Windows that the table of this process holds, ended ones that are not reused yet included.", nil, nil)
	descCapacity   = prometheus.NewDesc("weir_table_capacity_keys", "How many fit into its bound, about.", nil, nil)
	descBytes      = prometheus.NewDesc("weir_table_bytes", "Memory that the table holds.", nil, nil)
	descBound      = prometheus.NewDesc("weir_table_bound_bytes", "The bound of that memory.", nil, nil)
	descBudgets    = prometheus.NewDesc("weir_table_shared_budget_charges_total", "Charges that were counted in a budget that newcomers share, because the table was full: some callers may be refused early.", nil, nil)
	descAsked      = prometheus.NewDesc("weir_shared_store_asked_total", "Takes that the shared store was asked.", nil, nil)
	descRemembered = prometheus.NewDesc("weir_shared_store_remembered_total", "Takes that were refused without asking it, because this process knew the window to be spent.", nil, nil)
	descEmptied    = prometheus.NewDesc("weir_shared_store_emptied_total", "How often the shared store was found to have lost its counters: its windows began anew, so limits could pass once more.", nil, nil)
)

// asked collects them.
type asked struct{ *Metrics }

func (m asked) Describe(to chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{descStoreUp, descBreaker, descInFlight, descKeys, descCapacity, descBytes, descBound, descBudgets, descAsked, descRemembered, descEmptied} {
		to <- d
	}
	for _, d := range ways() {
		to <- d
	}
	for i := range descPolicy {
		to <- descPolicy[i]
		to <- descCandidate[i]
	}
}

func (m asked) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v int64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	ask := m.sources.Load()
	if ask.Health != nil {
		h := ask.Health()
		gauge(descStoreUp, one(!h.Failing))
		gauge(descBreaker, one(h.Barred))
	}
	if ask.InFlight != nil {
		gauge(descInFlight, float64(ask.InFlight()))
	}
	if ask.Table != nil {
		t := ask.Table()
		gauge(descKeys, float64(t.Keys))
		gauge(descCapacity, float64(t.Capacity))
		gauge(descBytes, float64(t.Bytes))
		gauge(descBound, float64(t.Memory))
		counter(descBudgets, t.Shared)
	}
	if ask.Shared != nil {
		s := ask.Shared()
		counter(descAsked, s.Asked)
		counter(descRemembered, s.Remembered)
		counter(descEmptied, s.Emptied)
	}
	ask.collectWays(to)
	policy := func(d [4]*prometheus.Desc, p PolicyState) {
		gauge(d[0], 1, p.Version, p.Source)
		gauge(d[1], unix(p.Loaded))
		gauge(d[2], one(p.Tried.IsZero() || p.OK))
		gauge(d[3], unix(p.Tried))
	}
	if ask.PolicyState != nil {
		policy(descPolicy, ask.PolicyState())
	}
	if ask.CandidateState != nil {
		if p, ok := ask.CandidateState(); ok {
			policy(descCandidate, p)
		}
	}
}

// one is 1 where it holds, else 0.
func one(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}

// unix is a time in seconds; 0 where it is zero.
func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1e3
}
