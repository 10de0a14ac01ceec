package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/httplimit"
)

// TraceOptions are the settings of a Tracer. Endpoint is required.
type TraceOptions struct {
	// Endpoint is where spans are posted as OTLP: an http or https URL, path included, such as
	// http://127.0.0.1:4318/v1/traces.
	Endpoint *url.URL
	// Header is sent with them, such as a collector's API key; it is never logged.
	Header http.Header

	// Ratio is the part of the traces that begin here which is recorded, from 0 to 1. Those that a caller has begun are recorded
	// where the caller records them.
	Ratio float64

	// Trusts says whose traceparent is taken up; of others' requests a new trace begins, linked to theirs. Nil trusts
	// nobody: who may have each of its requests recorded makes them cost several times as much.
	Trusts func(*http.Request) bool

	// Service and Version are who the spans are of.
	Service, Version string

	// Log hears, once, that the collector cannot be reached, and that it can again; nil means slog.Default().
	Log *slog.Logger
}

// A Tracer records spans of requests and of what an upstream makes of them, and posts them to a collector. Requests never wait for
// that: what does not fit into a bounded queue is dropped. It is safe for concurrent use.
type Tracer struct {
	provider *sdk.TracerProvider
	exporter *reporter
	options  []otelhttp.Option
	trusts   func(*http.Request) bool
}

const (
	mostQueued    = 4096             // spans that wait for the collector
	exportTimeout = 10 * time.Second // for a batch, second tries included
	mostAttribute = 1024             // bytes of an attribute; a path can be 64 KiB
)

// NewTracer returns a Tracer and starts its goroutine, which ends with Close. Whether the collector can be reached is not asked.
func NewTracer(o TraceOptions) (*Tracer, error) {
	if o.Endpoint == nil || o.Endpoint.Scheme != "http" && o.Endpoint.Scheme != "https" || o.Endpoint.Host == "" {
		return nil, fmt.Errorf("new tracer: endpoint %v: an http or https URL is allowed, such as http://127.0.0.1:4318/v1/traces", o.Endpoint)
	}
	if !(o.Ratio >= 0 && o.Ratio <= 1) {
		return nil, fmt.Errorf("new tracer: ratio %v: 0 to 1 are allowed", o.Ratio)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	exporter := &reporter{log: o.Log, to: o.Endpoint.Redacted()}
	exporter.next = otlptrace.NewUnstarted(newCollector(o.Endpoint, o.Header, exporter.trouble))
	exporter.ended, exporter.end = context.WithCancel(context.Background())
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit = mostAttribute
	t := &Tracer{exporter: exporter, trusts: o.Trusts}
	t.provider = sdk.NewTracerProvider(
		sdk.WithBatcher(exporter, sdk.WithMaxQueueSize(mostQueued), sdk.WithExportTimeout(exportTimeout)),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(o.Ratio))),
		sdk.WithRawSpanLimits(limits),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", o.Service), attribute.String("service.version", o.Version))),
	)
	t.options = []otelhttp.Option{
		otelhttp.WithTracerProvider(t.provider),
		otelhttp.WithMeterProvider(noop.NewMeterProvider()),
		otelhttp.WithPropagators(propagation.TraceContext{}),
	}
	return t, nil
}

// Wrap puts a span around each request but those of health checks: what gateway.Options.Wrap is to be.
func (t *Tracer) Wrap(next http.Handler) http.Handler {
	options := append(t.options[:len(t.options):len(t.options)],
		otelhttp.WithFilter(func(r *http.Request) bool { return r.URL.Path != "/healthz" && r.URL.Path != "/readyz" }),
		otelhttp.WithSpanOptions(trace.WithAttributes(attribute.String("weir.outcome", httplimit.Unlimited.String()))))
	options = append(options, otelhttp.WithPublicEndpointFn(func(r *http.Request) bool { return t.trusts == nil || !t.trusts(r) }))
	return otelhttp.NewHandler(next, "request", options...)
}

// WrapTransport puts a span around what an upstream is asked, and has it carry traceparent: what gateway.Options.WrapTransport is
// to be.
func (t *Tracer) WrapTransport(next http.RoundTripper) http.RoundTripper {
	return otelhttp.NewTransport(next, t.options...)
}

// Observe notes in a request's span what was decided: what httplimit.Options.Observe is to call.
func (t *Tracer) Observe(o httplimit.Observation) {
	if o.Context == nil {
		return
	}
	span := trace.SpanFromContext(o.Context)
	if !span.IsRecording() {
		return
	}
	n := windowNames(o.Limiter, o.Window)
	span.SetAttributes(attribute.String("weir.limiter", n.limiter), attribute.String("weir.window", n.window),
		attribute.String("weir.outcome", o.Outcome.String()))
}

// Close posts what is left, within ctx, and ends the Tracer; spans after it are dropped.
func (t *Tracer) Close(ctx context.Context) error {
	err := t.provider.Shutdown(ctx)
	t.exporter.stop()
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("close the tracer: %w", err)
	}
	return nil // what a collector does not take in time is lost, and the log says so
}
