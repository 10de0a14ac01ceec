package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir"
)

// storeMetrics are about a store that can fail. Each of its takes is a round trip, beside which what they cost is nothing.
type storeMetrics struct {
	takes    prometheus.Histogram
	failures prometheus.Counter

	outages, outageSeconds, local, given, lost prometheus.Counter
}

func newStoreMetrics() storeMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return storeMetrics{
		takes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_store_take_duration_seconds",
			Help: "How long the shared store took to answer one take, or not to. The embedded store never waits, and is not in here.",
			Buckets: []float64{
				50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 200e-3, 500e-3, 1,
			},
		}),
		failures:      counter("weir_store_failures_total", "Takes that the shared store did not answer."),
		outages:       counter("weir_store_outages_total", "How often the shared store stopped answering."),
		outageSeconds: counter("weir_store_outage_seconds_total", "How long it did not answer, of outages that have ended."),
		local:         counter("weir_store_local_decisions_total", "Requests that were decided without it, of outages that have ended."),
		given:         counter("weir_store_given_units_total", "Units that were counted here meanwhile and that it was given afterwards."),
		lost:          counter("weir_store_lost_units_total", "Units that were counted here meanwhile and that it may not have got."),
	}
}

func (s *storeMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{s.takes, s.failures, s.outages, s.outageSeconds, s.local, s.given, s.lost}
}

// StoreTake counts one take of a store that is not in this process: what weir.Options.OnTake is to call.
func (m *Metrics) StoreTake(took time.Duration, err error) {
	m.store.takes.Observe(took.Seconds())
	if err != nil {
		m.store.failures.Inc()
	}
}

// StoreEvent counts outages: what weir.Options.OnStoreFailure is to call.
func (m *Metrics) StoreEvent(e weir.StoreEvent) {
	if e.Failing {
		m.store.outages.Inc()
		return
	}
	for _, c := range [...]struct {
		counter prometheus.Counter
		by      float64
	}{
		{m.store.outageSeconds, e.For.Seconds()}, {m.store.local, float64(e.Local)},
		{m.store.given, float64(e.Given)}, {m.store.lost, float64(e.Lost)},
	} {
		c.counter.Add(max(c.by, 0)) // a clock that was set back ends nothing here
	}
}
