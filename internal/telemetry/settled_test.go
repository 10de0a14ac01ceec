package telemetry_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/telemetry"
)

// newSettling returns the Decider of a limiter "llm" whose answers tell their cost, with at most
// two requests in flight, and what counts it.
func newSettling(t *testing.T, o telemetry.Options) (*weir.Decider, *telemetry.Metrics) {
	t.Helper()
	m := telemetry.New(o)
	d := newDeciderOf(t, settling(t), nil, weir.Options{OnSettled: m.Settled, OnHeld: m.Held})
	m.Bind(telemetry.Sources{Policy: d.Policy})
	return d, m
}

func settling(t *testing.T) weir.Policy {
	p := policy(t, "1000 per minute by ip")
	l := &p.Limiters[0]
	l.Name, l.Cost, l.Actual = "llm", 100, weir.Reading{Form: weir.ReadJSON, Name: "usage.total"}
	l.InFlight = weir.InFlight{Limit: 2, Key: l.Windows[0].Key}
	return p
}

// begin decides a request and reports it as a door does.
func begin(t *testing.T, d *weir.Decider, m *telemetry.Metrics) *weir.Scratch {
	t.Helper()
	s := new(weir.Scratch)
	out, err := d.Decide(t.Context(), weir.Request{Method: "POST", Path: "/", Keys: address("192.0.2.1"), Scratch: s})
	if err != nil {
		t.Fatal(err)
	}
	o := answer.Observation{Limiter: out.Limiter().Name, Window: out.Binding().Window, Outcome: answer.Admitted, Decision: &out}
	if !out.Allowed {
		o.Outcome = answer.Refused
	}
	m.Observe(o)
	return s
}

const ofLLM = `{limiter="llm"}`

func TestUnitsAreCountedByWhatBecameOfTheirReservation(t *testing.T) {
	d, m := newSettling(t, telemetry.Options{})
	for _, name := range []string{"weir_reserved_units_total", "weir_given_back_units_total", "weir_overrun_units_total", "weir_stranded_units_total", "weir_unreported_cost_requests_total", "weir_slots_in_flight"} {
		want(t, m, name+ofLLM, 0) // there before the first
	}
	for _, spent := range []int64{30, 100, 104, -1} {
		s := begin(t, d, m)
		if spent >= 0 {
			d.Spent(t.Context(), s, spent, nil)
		}
		d.End(t.Context(), s)
	}
	want(t, m, "weir_reserved_units_total"+ofLLM, 400)
	want(t, m, "weir_given_back_units_total"+ofLLM, 70)
	want(t, m, "weir_overrun_units_total"+ofLLM, 4)
	want(t, m, "weir_unreported_cost_requests_total"+ofLLM, 1)
	want(t, m, "weir_stranded_units_total"+ofLLM, 0)

	l := &d.Policy().Limiters[0]
	m.Settled(weir.Settled{Limiter: l, Reserved: 100, Used: 40, Lost: 60})
	want(t, m, "weir_stranded_units_total"+ofLLM, 60)
	want(t, m, "weir_given_back_units_total"+ofLLM, 70) // it may not have been
	m.Settled(weir.Settled{Limiter: l, Reserved: 100, Used: 40, Shadow: true})
	want(t, m, "weir_given_back_units_total"+ofLLM, 70)
}

func TestSlotsInFlightAreAGaugeAndTheirRefusalsHaveAWindow(t *testing.T) {
	d, m := newSettling(t, telemetry.Options{})
	const refused = `weir_decisions_total{limiter="llm",outcome="refused",window="in flight by ip"}`
	want(t, m, refused, 0)
	one := begin(t, d, m)
	begin(t, d, m)
	begin(t, d, m)
	want(t, m, "weir_slots_in_flight"+ofLLM, 2)
	want(t, m, refused, 1)
	d.End(t.Context(), one)
	want(t, m, "weir_slots_in_flight"+ofLLM, 1)
	want(t, m, `weir_decisions_total{limiter="llm",outcome="admitted",window="60s by ip"}`, 2)
}

func TestALimiterWithoutWindowsIsCounted(t *testing.T) {
	p := settling(t)
	l := &p.Limiters[0]
	l.Windows, l.Cost, l.Actual = nil, 0, weir.Reading{}
	m := telemetry.New(telemetry.Options{})
	d := newDeciderOf(t, p, nil, weir.Options{OnHeld: m.Held})
	m.Bind(telemetry.Sources{Policy: d.Policy})
	begin(t, d, m)
	want(t, m, `weir_decisions_total{limiter="llm",outcome="admitted",window="in flight by ip"}`, 1)
	want(t, m, "weir_reserved_units_total"+ofLLM, 0)
	want(t, m, `weir_fallback_decisions_total{how="counted_locally",limiter="llm"}`, 0)
}

// A stream may outlive its limiter, and the gauge must come back to 0.
func TestAHeldSlotKeepsTheSeriesOfALostLimiter(t *testing.T) {
	at := &clock{now: time.Unix(1e9, 0)}
	d, m := newSettling(t, telemetry.Options{Keep: time.Minute, Now: at.Now})
	s := begin(t, d, m)
	if err := d.Swap(policy(t, "10 per minute by ip")); err != nil {
		t.Fatal(err)
	}
	want(t, m, "weir_slots_in_flight"+ofLLM, 1)
	at.Advance(time.Hour)
	want(t, m, "weir_slots_in_flight"+ofLLM, 1)
	d.End(t.Context(), s)
	absent(t, m, "weir_slots_in_flight"+ofLLM)
	if err := d.Swap(settling(t)); err != nil {
		t.Fatal(err)
	}
	want(t, m, "weir_slots_in_flight"+ofLLM, 0)
}

func TestCountingASettlementDoesNotAllocate(t *testing.T) {
	d, m := newSettling(t, telemetry.Options{})
	s := weir.Settled{Limiter: &d.Policy().Limiters[0], Reserved: 9, Used: 3}
	m.Settled(s)
	if n := testing.AllocsPerRun(1000, func() { m.Settled(s); m.Held(s.Limiter, 1); m.Held(s.Limiter, -1) }); n >= 1 {
		t.Errorf("%v allocations", n)
	}
}
