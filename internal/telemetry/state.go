package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A PolicyState describes the origin of a policy, and the result of the last attempt to replace it.
type PolicyState struct {
	Version string // the version of its text
	Source  string // "contract", "file", "posted"
	Loaded  time.Time

	Tried time.Time // the last attempt to replace it; zero if there was none
	OK    bool      // whether that attempt succeeded; ignored if there was none
}

// A TokenFileState describes the API tokens of a file.
type TokenFileState struct {
	Tokens int  // in force
	OK     bool // whether the last attempt to read the file succeeded
}

func policyDescs(which, of string) (d [4]*prometheus.Desc) {
	d[0] = prometheus.NewDesc("weir_"+which+"_info", "The version and source of the "+of+"; always 1.", []string{"version", "source"}, nil)
	d[1] = prometheus.NewDesc("weir_"+which+"_loaded_timestamp_seconds", "Unix time at which the "+of+" was loaded.", nil, nil)
	d[2] = prometheus.NewDesc("weir_"+which+"_last_reload_successful", "1 if the last attempt to replace the "+of+" succeeded, or there was none; 0 if it failed and the previous one is still in force.", nil, nil)
	d[3] = prometheus.NewDesc("weir_"+which+"_last_reload_timestamp_seconds", "Unix time of the last attempt to replace the "+of+"; 0 if there was none.", nil, nil)
	return d
}

// The families whose figures come from Sources.
var (
	descPolicy    = policyDescs("policy", "policy")
	descCandidate = policyDescs("candidate", "candidate policy")

	descStoreUp = prometheus.NewDesc("weir_store_up",
		"1 while the store answers. While it is 0, each limiter follows its on_store_failure.", nil, nil)
	descBreaker = prometheus.NewDesc("weir_store_breaker_open",
		"1 while the circuit breaker is open: requests do not wait for the store, and one a second probes whether it answers again.", nil, nil)
	descInFlight   = prometheus.NewDesc("weir_requests_in_flight", "Requests in flight, including websockets.", nil, nil)
	descKeys       = prometheus.NewDesc("weir_table_keys", "Windows in the table of this process, including ended ones that are not reused yet.", nil, nil)
	descCapacity   = prometheus.NewDesc("weir_table_capacity_keys", "Approximate number of windows that fit into the table's memory bound.", nil, nil)
	descBytes      = prometheus.NewDesc("weir_table_bytes", "Memory that the table uses.", nil, nil)
	descBound      = prometheus.NewDesc("weir_table_bound_bytes", "Maximum memory of the table.", nil, nil)
	descBudgets    = prometheus.NewDesc("weir_table_shared_budget_charges_total", "Charges that were counted in a budget that new callers share, because the table was full: some callers may be refused early.", nil, nil)
	descAsked      = prometheus.NewDesc("weir_shared_store_asked_total", "Takes that were sent to the shared store.", nil, nil)
	descRemembered = prometheus.NewDesc("weir_shared_store_remembered_total", "Takes that were refused without a request to the shared store, because this process knew that the window was spent.", nil, nil)
	descLeased     = prometheus.NewDesc("weir_shared_store_leased_takes_total", "Takes that were admitted without a request to the shared store, from units that this process had leased.", nil, nil)
	descLeases     = prometheus.NewDesc("weir_shared_store_leased_units_total", "Units that this process has leased of the shared store, by what became of them: granted counts all. Of these, returned went back unused; held_back did so too, but the window was spent meanwhile, so that other processes may have refused requests; stranded stay spent until the reset, although no request has got them.", []string{"result"}, nil)
	descClaimed    = prometheus.NewDesc("weir_shared_store_claims_total", "Windows of which this process refused a request while other processes may have held leased units, and of which it asked for these: once a second for each window at most.", nil, nil)
	descEvents     = prometheus.NewDesc("weir_events_total", "Events of limiters with notify, by what became of them. In the log: logged, or unlogged if a second had too many. At the webhook: delivered, or lost as rejected (the receiver refused it for good), expired (not accepted in time), dropped (too many waited) or unsent (the server ended). repeated: the same event was reported before.", []string{"result"}, nil)
	descTokens     = prometheus.NewDesc("weir_token_file_tokens", "API tokens in force from --token-file, including expired ones.", nil, nil)
	descTokensOK   = prometheus.NewDesc("weir_token_file_last_reload_successful", "1 if the last attempt to read --token-file succeeded; 0 if it failed and the tokens of an earlier version are still in force.", nil, nil)
	descAgain      = prometheus.NewDesc("weir_shared_store_counted_again_units_total", "Units that a promoted replica of the shared store may not have received, and that this process counted there again: some of them may count twice.", nil, nil)
	descEmptied    = prometheus.NewDesc("weir_shared_store_emptied_total", "How often the shared store was found to have lost its counters: its windows started from zero, so callers could use their limits again.", nil, nil)
)

// A sourceCollector collects them.
type sourceCollector struct{ *Metrics }

func (m sourceCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{descStoreUp, descBreaker, descInFlight, descKeys, descCapacity, descBytes, descBound, descBudgets, descAsked, descRemembered, descAgain, descEmptied, descLeased, descLeases, descClaimed, descEvents, descTokens, descTokensOK} {
		to <- d
	}
	for _, d := range gatewayDescs() {
		to <- d
	}
	for i := range descPolicy {
		to <- descPolicy[i]
		to <- descCandidate[i]
	}
}

func (m sourceCollector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v int64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	from := m.sources.Load()
	if from.Health != nil {
		h := from.Health()
		gauge(descStoreUp, boolValue(!h.Failing))
		gauge(descBreaker, boolValue(h.BreakerOpen))
	}
	if from.InFlight != nil {
		gauge(descInFlight, float64(from.InFlight()))
	}
	if from.Table != nil {
		t := from.Table()
		gauge(descKeys, float64(t.Keys))
		gauge(descCapacity, float64(t.Capacity))
		gauge(descBytes, float64(t.Bytes))
		gauge(descBound, float64(t.Memory))
		counter(descBudgets, t.Shared)
	}
	if from.Shared != nil {
		s := from.Shared()
		counter(descAsked, s.Asked)
		counter(descRemembered, s.Remembered)
		counter(descAgain, s.CountedAgain)
		counter(descEmptied, s.Emptied)
		counter(descLeased, s.Leases.Takes)
		counter(descClaimed, s.Leases.Claimed)
		for result, n := range map[string]int64{"granted": s.Leases.Granted, "returned": s.Leases.Returned, "held_back": s.Leases.HeldBack, "stranded": s.Leases.Stranded} {
			to <- prometheus.MustNewConstMetric(descLeases, prometheus.CounterValue, float64(n), result)
		}
	}
	if from.Events != nil {
		for result, n := range from.Events() {
			to <- prometheus.MustNewConstMetric(descEvents, prometheus.CounterValue, float64(n), result)
		}
	}
	if from.TokenFile != nil {
		f := from.TokenFile()
		gauge(descTokens, float64(f.Tokens))
		gauge(descTokensOK, boolValue(f.OK))
	}
	from.collectGateway(to)
	policy := func(d [4]*prometheus.Desc, p PolicyState) {
		gauge(d[0], 1, p.Version, p.Source)
		gauge(d[1], unix(p.Loaded))
		gauge(d[2], boolValue(p.Tried.IsZero() || p.OK))
		gauge(d[3], unix(p.Tried))
	}
	if from.PolicyState != nil {
		policy(descPolicy, from.PolicyState())
	}
	if from.CandidateState != nil {
		if p, ok := from.CandidateState(); ok {
			policy(descCandidate, p)
		}
	}
}

// boolValue returns 1 if holds is true, else 0.
func boolValue(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}

// unix returns t in seconds since the Unix epoch, or 0 if t is zero.
func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1e3
}
