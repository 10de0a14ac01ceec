package telemetry_test

import (
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/telemetry"
	"github.com/weirlimit/weir/memstore"
)

// policy is one limiter, "api" over /, with one window.
func policy(t testing.TB, window string) weir.Policy {
	t.Helper()
	w, err := weir.ParseWindow(window)
	if err != nil {
		t.Fatal(err)
	}
	r, err := weir.ParseRoute("/*")
	if err != nil {
		t.Fatal(err)
	}
	return weir.Policy{Limiters: []weir.Limiter{{Name: "api", Routes: []weir.Route{r}, Windows: []weir.Window{w}}}}
}

func newDecider(t testing.TB, window string, o weir.Options) *weir.Decider {
	t.Helper()
	return newDeciderOf(t, policy(t, window), nil, o)
}

// newDeciderOf returns a Decider of p that counts in s; nil means a new memstore.
func newDeciderOf(t testing.TB, p weir.Policy, s weir.Store, o weir.Options) *weir.Decider {
	t.Helper()
	if s == nil {
		s = newStore(t)
	}
	d, err := weir.New(p, s, o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func newStore(t testing.TB) *memstore.Store {
	t.Helper()
	s, err := memstore.New(memstore.Options{Memory: memstore.MinMemory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// address is a caller that is known only by its address.
type address string

func (a address) AppendKey(dst []byte, source string) ([]byte, bool) {
	if source != "ip" {
		return dst, false
	}
	return append(dst, a...), true
}

func decide(t testing.TB, d *weir.Decider, ip address) weir.Decision {
	t.Helper()
	out, err := d.Decide(t.Context(), weir.Request{Method: "GET", Path: "/", Keys: ip})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// gather returns every family by its name.
func gather(t testing.TB, m *telemetry.Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*dto.MetricFamily{}
	for _, f := range families {
		all[f.GetName()] = f
	}
	return all
}

// figure returns the value of one series, spelled as name{label="value",…} with the labels in order
// of their names. It is false if there is no such series.
func figure(t testing.TB, m *telemetry.Metrics, series string) (float64, bool) {
	t.Helper()
	name, _, _ := strings.Cut(series, "{")
	f := gather(t, m)[name]
	for _, one := range f.GetMetric() {
		if spelled(name, one) != series {
			continue
		}
		switch {
		case one.Counter != nil:
			return one.Counter.GetValue(), true
		case one.Gauge != nil:
			return one.Gauge.GetValue(), true
		default:
			return float64(one.Histogram.GetSampleCount()), true
		}
	}
	return 0, false
}

func spelled(name string, m *dto.Metric) string {
	if len(m.Label) == 0 {
		return name
	}
	var labels []string
	for _, l := range m.Label {
		labels = append(labels, l.GetName()+`="`+l.GetValue()+`"`)
	}
	return name + "{" + strings.Join(labels, ",") + "}"
}

// want fails the test if a series has another value.
func want(t testing.TB, m *telemetry.Metrics, series string, value float64) {
	t.Helper()
	if got, ok := figure(t, m, series); !ok || got != value {
		t.Errorf("%s is %v (there: %v), want %v", series, got, ok, value)
	}
}

// absent fails the test if the series exists.
func absent(t testing.TB, m *telemetry.Metrics, series string) {
	t.Helper()
	if got, ok := figure(t, m, series); ok {
		t.Errorf("%s is there, %v", series, got)
	}
}

// A clock is set by the test.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time          { return c.now }
func (c *clock) Advance(d time.Duration) { c.now = c.now.Add(d) }
