package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/failover"
)

// storeMetrics count the takes and outages of a store that can fail. Each of its takes is a round
// trip, so the cost of these metrics does not matter.
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
			Help: "Duration of one take in the shared store, answered or not. The embedded store never waits and is not included.",
			Buckets: []float64{
				50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 200e-3, 500e-3, 1,
			},
		}),
		failures:      counter("weir_store_failures_total", "Takes that the shared store did not answer."),
		outages:       counter("weir_store_outages_total", "How often the shared store stopped answering."),
		outageSeconds: counter("weir_store_outage_seconds_total", "Total duration of the shared store's outages that have ended."),
		local:         counter("weir_store_local_decisions_total", "Requests that were decided without the shared store, in outages that have ended."),
		given:         counter("weir_store_given_units_total", "Units that were counted in this process during an outage and added to the shared store afterwards."),
		lost:          counter("weir_store_lost_units_total", "Units that were counted in this process during an outage and may not have reached the shared store."),
	}
}

func (s *storeMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{s.takes, s.failures, s.outages, s.outageSeconds, s.local, s.given, s.lost}
}

// StoreTake counts one take of a store outside this process: it is for failover.Options.OnTake.
func (m *Metrics) StoreTake(took time.Duration, err error) {
	m.store.takes.Observe(took.Seconds())
	if err != nil {
		m.store.failures.Inc()
	}
}

// StoreEvent counts outages: it is for failover.Options.OnEvent.
func (m *Metrics) StoreEvent(e failover.Event) {
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
		// negative if the clock was set back; a counter must not decrease
		c.counter.Add(max(c.by, 0))
	}
}
