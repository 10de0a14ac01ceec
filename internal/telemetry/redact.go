package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// exportedAttributes are the only attributes of an exported span: those of the access log, without
// the client. The instrumentation also sets the query (in url.full), the addresses of the client
// and the peer, and the user agent. An allowlist also excludes attributes that it may set in the
// future.
var exportedAttributes = map[attribute.Key]bool{
	"http.request.method": true, "http.response.status_code": true, "http.request.body.size": true, "http.response.body.size": true,
	"url.scheme": true, "url.path": true, "server.address": true, "server.port": true,
	"network.protocol.name": true, "network.protocol.version": true, "error.type": true,
	"weir.limiter": true, "weir.window": true, "weir.outcome": true,
}

// A redactedSpan is a span as the collector receives it. It omits the texts of errors, and the
// tracestate, which a caller chooses.
type redactedSpan struct {
	sdk.ReadOnlySpan
	attributes []attribute.KeyValue
	links      []sdk.Link
}

func redact(s sdk.ReadOnlySpan) sdk.ReadOnlySpan {
	t := &redactedSpan{ReadOnlySpan: s}
	for _, a := range s.Attributes() {
		if exportedAttributes[a.Key] {
			t.attributes = append(t.attributes, a)
		}
	}
	for _, l := range s.Links() {
		t.links = append(t.links, sdk.Link{SpanContext: stateless(l.SpanContext)})
	}
	return t
}

func stateless(c trace.SpanContext) trace.SpanContext { return c.WithTraceState(trace.TraceState{}) }

func (t *redactedSpan) Attributes() []attribute.KeyValue { return t.attributes }
func (t *redactedSpan) Links() []sdk.Link                { return t.links }
func (t *redactedSpan) Events() []sdk.Event              { return nil }
func (t *redactedSpan) Status() sdk.Status               { return sdk.Status{Code: t.ReadOnlySpan.Status().Code} }
func (t *redactedSpan) SpanContext() trace.SpanContext {
	return stateless(t.ReadOnlySpan.SpanContext())
}
func (t *redactedSpan) Parent() trace.SpanContext { return stateless(t.ReadOnlySpan.Parent()) }

// A reporter exports redacted spans. It logs once when exports begin to fail, and once when they
// succeed again.
type reporter struct {
	next sdk.SpanExporter
	log  *slog.Logger
	to   string

	failing atomic.Bool
	lost    atomic.Int64 // spans lost since exports began to fail

	busy  sync.Mutex // held during an export
	ended context.Context
	end   context.CancelFunc
}

// ExportSpans implements sdk.SpanExporter. It returns no error, since the library would pass it to
// a global handler.
func (r *reporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	r.busy.Lock()
	defer r.busy.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ended, cancel)()
	redacted := make([]sdk.ReadOnlySpan, len(spans))
	for i, s := range spans {
		redacted[i] = redact(s)
	}
	if err := r.next.ExportSpans(ctx, redacted); err != nil {
		r.lost.Add(int64(len(spans)))
		r.trouble(err)
		return nil
	}
	if r.failing.Swap(false) {
		r.log.Info("the trace collector accepts spans again", "collector", r.to, "lost", r.lost.Swap(0))
	}
	return nil
}

// trouble logs that the collector does not accept spans, unless that is logged already.
func (r *reporter) trouble(err error) {
	if !r.failing.Swap(true) {
		r.log.Error("the trace collector does not accept spans: spans are lost until it does; requests are not affected", "collector", r.to, "error", err)
	}
}

// Shutdown implements sdk.SpanExporter.
func (r *reporter) Shutdown(ctx context.Context) error { return r.next.Shutdown(ctx) }

// stop cancels a running export and waits until it has ended.
func (r *reporter) stop() {
	r.end()
	r.busy.Lock()
	defer r.busy.Unlock()
}
