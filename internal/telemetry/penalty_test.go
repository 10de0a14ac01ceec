package telemetry_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/telemetry"
)

func TestRefusalsByAPenaltyAreCountedApart(t *testing.T) {
	p := policy(t, "1 per minute by ip")
	p.Limiters[0].Penalty = weir.Penalty{After: 3, Per: time.Hour, For: time.Hour}
	m := telemetry.New(telemetry.Options{})
	d := newDeciderOf(t, p, nil, weir.Options{})
	m.Bind(telemetry.Sources{Policy: d.Policy})
	h := limited(t, d, m)
	for range 6 { // one is admitted, and the fourth begins the penalty
		ask(h, "GET", "/")
	}
	want(t, m, `weir_decisions_total{limiter="api",outcome="refused",window="60s by ip"}`, 5)
	want(t, m, `weir_penalty_decisions_total{limiter="api",window="60s by ip"}`, 3)
}

func TestAPenaltyIsCountedIfAnotherWindowFreesLater(t *testing.T) {
	p := policy(t, "9 per minute by ip")
	p.Limiters[0].Windows = append(p.Limiters[0].Windows, policy(t, "1 per day by ip").Limiters[0].Windows...)
	p.Limiters[0].Penalty = weir.Penalty{After: 1, Per: time.Hour, For: time.Hour}
	m := telemetry.New(telemetry.Options{})
	d := newDeciderOf(t, p, nil, weir.Options{})
	m.Bind(telemetry.Sources{Policy: d.Policy})
	h := limited(t, d, m)
	for range 3 { // the second begins the penalty
		ask(h, "GET", "/")
	}
	want(t, m, `weir_penalty_decisions_total{limiter="api",window="86400s by ip"}`, 2)
}
