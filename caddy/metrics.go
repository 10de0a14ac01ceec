package weircaddy

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/weirlimit/weir/internal/telemetry"
)

// metricsKey is the name of the figures in the pool. All handlers of the process count in the same,
// so that they outlive a reload.
type metricsKey struct{}

type figures struct{ *telemetry.Metrics }

// Destruct implements caddy.Destructor.
func (figures) Destruct() error { return nil }

func (h *Handler) metrics() (figures, error) {
	value, _, err := pool.LoadOrNew(metricsKey{}, func() (caddy.Destructor, error) {
		return figures{telemetry.New(telemetry.Options{})}, nil
	})
	if err != nil {
		return figures{}, err
	}
	h.pooled = append(h.pooled, metricsKey{})
	return value.(figures), nil
}

// openMetrics returns the figures, and adds them to those that Caddy exports.
func (h *Handler) openMetrics(ctx caddy.Context) (*telemetry.Metrics, error) {
	f, err := h.metrics()
	if err != nil {
		return nil, err
	}
	registry := ctx.GetMetricsRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_build_info", Help: "Which Weir this is; always 1.",
		ConstLabels: prometheus.Labels{"version": version(), "goversion": runtime.Version()},
	})
	build.Set(1)
	// Each configuration has a registry of its own, and perhaps several handlers.
	var another prometheus.AlreadyRegisteredError
	if err := registry.Register(build); errors.As(err, &another) {
		return f.Metrics, nil
	} else if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	if err := registry.Register(exported{f.Gatherer()}); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return f.Metrics, nil
}

// version returns the version of Weir in this build of Caddy.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/weirlimit/weir" {
				return m.Version
			}
		}
	}
	return "(devel)"
}

// An exported collects what another registry has gathered. Caddy has the process's own figures.
type exported struct{ from prometheus.Gatherer }

// Describe implements prometheus.Collector. Describing nothing leaves the checks to each scrape.
func (exported) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (e exported) Collect(to chan<- prometheus.Metric) {
	families, err := e.from.Gather()
	if err != nil {
		to <- prometheus.NewInvalidMetric(prometheus.NewDesc("weir_error", "Why Weir's figures cannot be collected.", nil, nil), err)
		return
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "weir_") || f.GetName() == "weir_build_info" {
			continue
		}
		desc := prometheus.NewDesc(f.GetName(), f.GetHelp(), nil, nil)
		for _, m := range f.GetMetric() {
			to <- gathered{desc, m}
		}
	}
}

// A gathered is a metric of another registry.
type gathered struct {
	desc *prometheus.Desc
	from *dto.Metric
}

// Desc implements prometheus.Metric.
func (g gathered) Desc() *prometheus.Desc { return g.desc }

// Write implements prometheus.Metric.
func (g gathered) Write(to *dto.Metric) error {
	to.Label, to.TimestampMs = g.from.Label, g.from.TimestampMs
	to.Counter, to.Gauge, to.Histogram, to.Summary, to.Untyped = g.from.Counter, g.from.Gauge, g.from.Histogram, g.from.Summary, g.from.Untyped
	return nil
}
