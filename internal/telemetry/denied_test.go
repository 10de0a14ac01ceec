package telemetry_test

import (
	"net/netip"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/telemetry"
)

func TestDeniedRequestsAreCountedUnderTheirLimiter(t *testing.T) {
	m := telemetry.New(telemetry.Options{})
	p := policy(t, "2 per minute by ip")
	p.Limiters[0].Deny = []weir.Who{{Network: netip.MustParsePrefix("192.0.2.1/32")}}
	d := newDeciderOf(t, p, nil, weir.Options{OnShadow: m.Shadow, OnCandidate: m.Candidate})
	m.Bind(telemetry.Sources{Policy: d.Policy})
	want(t, m, `weir_decisions_total{limiter="api",outcome="denied",window=""}`, 0)
	h := limited(t, d, m)
	for range 3 { // of httptest's client, 192.0.2.1
		ask(h, "GET", "/else")
	}
	want(t, m, `weir_decisions_total{limiter="api",outcome="denied",window=""}`, 3)
	want(t, m, `weir_decisions_total{limiter="api",outcome="refused",window="60s by ip"}`, 0)
	want(t, m, `weir_decisions_total{limiter="",outcome="unlimited",window=""}`, 0)
}
