package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/upstream"
)

// TraceOptions are the settings of a Tracer. Endpoint is required.
type TraceOptions struct {
	// Endpoint is where spans are posted as OTLP: an http or https URL, path included, such as
	// http://127.0.0.1:4318/v1/traces.
	Endpoint *url.URL
	// Header is sent with each post, for example for a collector's API key. It is never logged.
	Header http.Header

	// Ratio is the share of the traces that begin here which is recorded, from 0 to 1. A trace
	// that a trusted caller began is recorded if that caller records it.
	Ratio float64

	// Trusts reports whether a request's traceparent is continued. For other requests, a new trace
	// begins that links to theirs. Nil trusts no caller: a caller that can have every request
	// recorded makes its requests cost several times as much.
	Trusts func(*http.Request) bool

	// Service and Version identify the source of the spans.
	Service, Version string

	// Log gets one line when exports to the collector begin to fail, and one when they succeed
	// again. Nil means slog.Default().
	Log *slog.Logger
}

// A Tracer records spans of requests and of their upstream requests, and posts them to a collector.
// Requests never wait for that: if the bounded queue is full, spans are dropped. A Tracer is safe
// for concurrent use.
type Tracer struct {
	provider *sdk.TracerProvider
	exporter *reporter
	options  []otelhttp.Option
	trusts   func(*http.Request) bool
}

const (
	maxQueued     = 4096             // spans that wait for the collector
	exportTimeout = 10 * time.Second // for a batch, including retries
	maxAttribute  = 1024             // bytes in an attribute; a path can be 64 KiB
)

// NewTracer returns a Tracer and starts its goroutine, which ends with Close. It does not check
// whether the collector is reachable.
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
	limits.AttributeValueLengthLimit = maxAttribute
	t := &Tracer{exporter: exporter, trusts: o.Trusts}
	t.provider = sdk.NewTracerProvider(
		sdk.WithBatcher(exporter, sdk.WithMaxQueueSize(maxQueued), sdk.WithExportTimeout(exportTimeout)),
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

// Wrap returns a handler that records a span for each request, except for health checks. It is for
// gateway.Options.Wrap.
func (t *Tracer) Wrap(next http.Handler) http.Handler {
	options := append(t.options[:len(t.options):len(t.options)],
		otelhttp.WithFilter(func(r *http.Request) bool { return r.URL.Path != "/healthz" && r.URL.Path != "/readyz" }),
		otelhttp.WithSpanOptions(trace.WithAttributes(attribute.String("weir.outcome", answer.Unlimited.String()))))
	options = append(options, otelhttp.WithPublicEndpointFn(func(r *http.Request) bool { return t.trusts == nil || !t.trusts(r) }))
	return otelhttp.NewHandler(next, "request", options...)
}

// TraceUpstream begins the span of a request to an upstream, and writes into its header what
// continues the trace there. end ends the span: at is the address that was asked last, status that
// of the answer (0: there was none), and err why the answer is not whole. It is for
// gateway.Options.TraceUpstream.
func (t *Tracer) TraceUpstream(ctx context.Context, method string, h http.Header) (end func(at upstream.Address, status int, err error)) {
	ctx, span := t.provider.Tracer(upstreamScope).Start(ctx, "HTTP "+method, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(methodAttribute(method), semconv.NetworkProtocolVersion("1.1")))
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
	return func(at upstream.Address, status int, err error) {
		defer span.End()
		if !span.IsRecording() {
			return
		}
		if host, port, ok := at.Endpoint(); ok {
			span.SetAttributes(semconv.ServerAddress(host))
			if port != 0 {
				span.SetAttributes(semconv.ServerPort(port))
			}
		}
		if status != 0 {
			span.SetAttributes(semconv.HTTPResponseStatusCode(status))
		}
		switch {
		case err != nil:
			span.SetAttributes(semconv.ErrorType(err))
			span.SetStatus(codes.Error, "")
		case status >= http.StatusBadRequest:
			span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(status)))
			span.SetStatus(codes.Error, "")
		}
	}
}

// upstreamScope is the name of what records the spans of TraceUpstream.
const upstreamScope = "github.com/weirlimit/weir/internal/telemetry"

// methodAttribute returns the attribute of a method; that of any other if it is not one of HTTP's
// own (semantic conventions, http.request.method).
func methodAttribute(method string) attribute.KeyValue {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, "QUERY":
		return semconv.HTTPRequestMethodKey.String(method)
	}
	return semconv.HTTPRequestMethodOther
}

// Traceparent returns the traceparent of the span in ctx, which the upstream's is a child of; empty
// if there is none. It is for gateway.Options.Traceparent.
func (t *Tracer) Traceparent(ctx context.Context) string {
	s := trace.SpanContextFromContext(ctx)
	if !s.IsValid() {
		return ""
	}
	return fmt.Sprintf("00-%s-%s-%s", s.TraceID(), s.SpanID(), s.TraceFlags())
}

// TracePath replaces the path of the span in ctx. It is for gateway.Options.TracePath.
func (t *Tracer) TracePath(ctx context.Context, path string) {
	trace.SpanFromContext(ctx).SetAttributes(semconv.URLPath(path))
}

// Observe adds the decision to the request's span: it is for answer.Options.Observe.
func (t *Tracer) Observe(o answer.Observation) {
	if o.Context == nil {
		return
	}
	span := trace.SpanFromContext(o.Context)
	if !span.IsRecording() {
		return
	}
	n := windowNames(o.Limiter, o.Window)
	span.SetAttributes(attribute.String("weir.limiter", o.Limiter), attribute.String("weir.window", n.window),
		attribute.String("weir.outcome", o.Outcome.String()))
}

// Close posts the remaining spans until ctx ends, and stops the Tracer. Later spans are dropped.
func (t *Tracer) Close(ctx context.Context) error {
	err := t.provider.Shutdown(ctx)
	t.exporter.stop()
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("close the tracer: %w", err)
	}
	return nil // spans that the collector did not accept in time are lost, which is logged
}
