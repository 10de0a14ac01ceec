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

// toldAttributes are all that a span may say: what the access log says, without the client. The instrumentation also knows the
// query (in url.full), the client's address, the peer's, and the user agent; what it comes to know one day is not told either.
var toldAttributes = map[attribute.Key]bool{
	"http.request.method": true, "http.response.status_code": true, "http.request.body.size": true, "http.response.body.size": true,
	"url.scheme": true, "url.path": true, "server.address": true, "server.port": true,
	"network.protocol.name": true, "network.protocol.version": true, "error.type": true,
	"weir.limiter": true, "weir.window": true, "weir.outcome": true,
}

// A told span is one as the collector gets it. Errors' texts and the tracestate, which a caller chooses, are left out.
type told struct {
	sdk.ReadOnlySpan
	attributes []attribute.KeyValue
	links      []sdk.Link
}

func tell(s sdk.ReadOnlySpan) sdk.ReadOnlySpan {
	t := &told{ReadOnlySpan: s}
	for _, a := range s.Attributes() {
		if toldAttributes[a.Key] {
			t.attributes = append(t.attributes, a)
		}
	}
	for _, l := range s.Links() {
		t.links = append(t.links, sdk.Link{SpanContext: stateless(l.SpanContext)})
	}
	return t
}

func stateless(c trace.SpanContext) trace.SpanContext { return c.WithTraceState(trace.TraceState{}) }

func (t *told) Attributes() []attribute.KeyValue { return t.attributes }
func (t *told) Links() []sdk.Link                { return t.links }
func (t *told) Events() []sdk.Event              { return nil }
func (t *told) Status() sdk.Status               { return sdk.Status{Code: t.ReadOnlySpan.Status().Code} }
func (t *told) SpanContext() trace.SpanContext   { return stateless(t.ReadOnlySpan.SpanContext()) }
func (t *told) Parent() trace.SpanContext        { return stateless(t.ReadOnlySpan.Parent()) }

// A reporter exports what may be told, and says once when that fails.
type reporter struct {
	next sdk.SpanExporter
	log  *slog.Logger
	to   string

	failing atomic.Bool
	lost    atomic.Int64 // spans, since it has been failing

	busy  sync.Mutex // an export is under way
	ended context.Context
	end   context.CancelFunc
}

// ExportSpans implements sdk.SpanExporter. It returns no error: the library would hand it to a handler that is global.
func (r *reporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	r.busy.Lock()
	defer r.busy.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ended, cancel)()
	redacted := make([]sdk.ReadOnlySpan, len(spans))
	for i, s := range spans {
		redacted[i] = tell(s)
	}
	if err := r.next.ExportSpans(ctx, redacted); err != nil {
		r.lost.Add(int64(len(spans)))
		r.trouble(err)
		return nil
	}
	if r.failing.Swap(false) {
		r.log.Info("the traces' collector takes spans again", "collector", r.to, "lost", r.lost.Swap(0))
	}
	return nil
}

// trouble says that the collector does not take spans, if that is news.
func (r *reporter) trouble(err error) {
	if !r.failing.Swap(true) {
		r.log.Error("the traces' collector does not take spans, they are lost until it does; requests are served as ever", "collector", r.to, "error", err)
	}
}

// Shutdown implements sdk.SpanExporter.
func (r *reporter) Shutdown(ctx context.Context) error { return r.next.Shutdown(ctx) }

// stop cuts an export short that is under way, and waits for it.
func (r *reporter) stop() {
	r.end()
	r.busy.Lock()
	defer r.busy.Unlock()
}
