package telemetry_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/telemetry"
)

// The figure to hold: Observe below 100 ns with no allocation, and with two cores no more than with
// one. The other benchmarks measure the library's own counter and histogram, with labels resolved
// beforehand.
//
//	go test -run - -bench . -cpu 1,2 ./internal/telemetry

func observation(b *testing.B) answer.Observation {
	b.Helper()
	d := newDecider(b, "60 per minute by ip", weir.Options{})
	decision := decide(b, d, "192.0.2.1")
	s := decision.Standings()[0]
	return answer.Observation{
		Limiter: s.Limiter.Name, Window: s.Window, Outcome: answer.Admitted, Latency: 700 * time.Nanosecond, Decision: &decision,
	}
}

func BenchmarkObserve(b *testing.B) {
	admitted := observation(b)
	m := telemetry.New(telemetry.Options{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Observe(admitted)
		}
	})
}

func BenchmarkLibraryCounterAndHistogram(b *testing.B) {
	admitted := observation(b)
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "c"})
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Buckets: prometheus.ExponentialBuckets(1e-7, 2.15, 22)})
	observe := func(o answer.Observation) {
		counter.Inc()
		histogram.Observe(o.Latency.Seconds())
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			observe(admitted)
		}
	})
}

// A decision, with metrics and without.
func BenchmarkJudge(b *testing.B) {
	for _, with := range []string{"unobserved", "observed"} {
		b.Run(with, func(b *testing.B) {
			o := answer.Options{}
			if with == "observed" {
				o.Observe = telemetry.New(telemetry.Options{}).Observe
			}
			who, err := identity.New(identity.Options{})
			if err != nil {
				b.Fatal(err)
			}
			o.Identity = who
			judge, err := answer.New(newDecider(b, "2000000000 per minute by ip", weir.Options{}), o)
			if err != nil {
				b.Fatal(err)
			}
			var callers atomic.Int32
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r := httptest.NewRequest("GET", "/", nil)
				r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", callers.Add(1))
				var caller identity.Caller
				var a answer.Answer
				for pb.Next() {
					who.Start(&caller, &identity.HTTPRequest{Request: r})
					q := answer.Question{Caller: &caller, Method: "GET", Path: "/"}
					if err := judge.Answer(r.Context(), &q, &a); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// The cost that metrics and traces add to a request through the gateway's handler, without a
// network.
func BenchmarkGateway(b *testing.B) {
	nowhere := &url.URL{Scheme: "http", Host: "127.0.0.1:1", Path: "/v1/traces"}
	for _, c := range []struct {
		name   string
		count  bool
		ratios []float64 // of a tracer, or none
	}{{"bare", false, nil}, {"counted", true, nil}, {"traced of none", true, []float64{0}}, {"traced of all", true, []float64{1}}} {
		b.Run(c.name, func(b *testing.B) {
			who, err := identity.New(identity.Options{})
			if err != nil {
				b.Fatal(err)
			}
			o := gateway.Options{
				Decider: newDecider(b, "2000000000 per minute by ip", weir.Options{}), Identity: who, Log: slog.New(slog.DiscardHandler),
				Backend: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }),
			}
			m := telemetry.New(telemetry.Options{})
			if c.count {
				o.Observe = m.Observe
			}
			for _, ratio := range c.ratios {
				tracer, err := telemetry.NewTracer(telemetry.TraceOptions{Endpoint: nowhere, Ratio: ratio, Log: o.Log})
				if err != nil {
					b.Fatal(err)
				}
				defer func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
					defer cancel()
					_ = tracer.Close(ctx)
				}()
				o.Wrap, o.Observe = tracer.Wrap, func(ob answer.Observation) { m.Observe(ob); tracer.Observe(ob) }
			}
			g, err := gateway.New(o)
			if err != nil {
				b.Fatal(err)
			}
			h := g.Handler()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r := httptest.NewRequest("GET", "/x", nil)
				for pb.Next() {
					h.ServeHTTP(httptest.NewRecorder(), r)
				}
			})
		})
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	d := newDecider(t, "60 per minute by ip", weir.Options{})
	decision := decide(t, d, "192.0.2.1")
	s := decision.Standings()[0]
	m := telemetry.New(telemetry.Options{})
	o := answer.Observation{Limiter: s.Limiter.Name, Window: s.Window, Outcome: answer.Admitted, Decision: &decision}
	m.Observe(o)
	// the pool drops some under the race detector
	if n := testing.AllocsPerRun(1000, func() { m.Observe(o) }); n >= 1 {
		t.Errorf("Observe allocates %v times", n)
	}
}
