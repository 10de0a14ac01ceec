package telemetry_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/telemetry"
)

func TestRequestsAreCountedBySiteLimiterAndStatusClass(t *testing.T) {
	m := telemetry.New(telemetry.Options{})
	for _, status := range []int{101, 200, 204, 304, 404, 429, 499, 502, 0, 999} {
		m.Served(telemetry.Request{Site: "api.example.com", Limiter: "api", Status: status, Duration: 3 * time.Millisecond})
	}
	m.Served(telemetry.Request{Site: "*", Status: 200, Duration: time.Hour, Upstream: 700 * time.Microsecond})
	for class, n := range map[string]float64{"1xx": 1, "2xx": 2, "3xx": 1, "4xx": 3, "5xx": 1} {
		want(t, m, `weir_requests_total{limiter="api",site="api.example.com",status="`+class+`"}`, n)
	}
	want(t, m, `weir_requests_total{limiter="",site="*",status="2xx"}`, 1)
	want(t, m, `weir_requests_total{limiter="",site="*",status="5xx"}`, 0) // there before the first
	for name, counts := range map[string][2]uint64{"weir_request_duration_seconds": {10, 1}, "weir_upstream_duration_seconds": {0, 1}} {
		for _, metric := range gather(t, m)[name].Metric {
			h, at := metric.Histogram, 0
			if metric.Label[0].GetValue() == "*" {
				at = 1
			}
			if h.GetSampleCount() != counts[at] || len(h.Bucket) != 17 {
				t.Errorf("%s of %v has %d requests in %d buckets", name, metric.Label, h.GetSampleCount(), len(h.Bucket))
			}
		}
	}
}

// A large configuration has a bounded number of series.
func TestTheSeriesOfRequestsAreBounded(t *testing.T) {
	m := telemetry.New(telemetry.Options{})
	for i := range 3000 {
		m.Served(telemetry.Request{Site: "api.example.com", Limiter: fmt.Sprint("l", i), Status: 200})
	}
	want(t, m, `weir_requests_total{limiter="l0",site="api.example.com",status="2xx"}`, 1)
	want(t, m, `weir_requests_total{limiter="(others)",site="api.example.com",status="2xx"}`, 3000-2048)
	absent(t, m, `weir_requests_total{limiter="l2999",site="api.example.com",status="2xx"}`)
}

// The series of a limiter that left the policy end.
func TestTheSeriesOfALostLimiterEnds(t *testing.T) {
	now := time.Unix(1e9, 0)
	m := telemetry.New(telemetry.Options{Now: func() time.Time { return now }})
	inForce := policy(t, "10 per minute by ip")
	m.Bind(telemetry.Sources{Policy: func() weir.Policy { return inForce }})
	for _, name := range []string{"api", "", "lost"} {
		m.Served(telemetry.Request{Site: "*", Limiter: name, Status: 200})
	}
	gather(t, m)
	now = now.Add(16 * time.Minute)
	const of = `weir_requests_total{limiter="%s",site="*",status="2xx"}`
	absent(t, m, fmt.Sprintf(of, "lost"))
	want(t, m, fmt.Sprintf(of, "api"), 1)
	want(t, m, fmt.Sprintf(of, ""), 1)
	// its requests that were still under way have a new one
	m.Served(telemetry.Request{Site: "*", Limiter: "lost", Status: 200})
	want(t, m, fmt.Sprintf(of, "lost"), 1)
}

// Neither requests of one limiter nor those of several in turn allocate.
func TestCountingARequestAllocatesNothing(t *testing.T) {
	m := telemetry.New(telemetry.Options{})
	r := telemetry.Request{Site: "api.example.com", Limiter: "api", Status: 200, Duration: time.Millisecond, Upstream: time.Millisecond}
	other := r
	other.Site, other.Limiter = "*", "search"
	for _, next := range []telemetry.Request{r, other} {
		both := func() { m.Served(r); m.Served(next) }
		both()
		// sync.Pool may lose a lane
		if n := testing.AllocsPerRun(1000, both); n >= 1 {
			t.Errorf("%v allocations for two requests, of %s and of %s", n, r.Limiter, next.Limiter)
		}
	}
}

func BenchmarkServed(b *testing.B) {
	m := telemetry.New(telemetry.Options{})
	r := telemetry.Request{Site: "api.example.com", Limiter: "api", Status: 200, Duration: time.Millisecond, Upstream: time.Millisecond}
	b.ReportAllocs()
	for b.Loop() {
		m.Served(r)
	}
}
