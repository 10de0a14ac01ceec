package admin_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/denial"
	"github.com/weirlimit/weir/internal/live"
)

const slotsPolicy = `limiters:
  - name: ask
    routes: [POST /ask]
    windows: [5000 per minute by ip, 60 requests per minute by ip]
    cost: {reserve: 400, from: header:X-Cost}
    in_flight: 2 by ip
  - name: poll
    routes: [/poll]
    in_flight: 1 by ip
`

// newSlots returns a Server of slotsPolicy, and its ids of refusals.
func newSlots(t *testing.T) (*fixture, *denial.Sealer) {
	t.Helper()
	var sealer *denial.Sealer
	f := newFixture(t, func(o *admin.Options) {
		var err error
		if sealer, err = denial.New(func() []byte { return []byte(strings.Repeat("k", 32)) }, func() string { return live.Version(o.Decider.Policy()) }, strings.NewReader(strings.Repeat("salt", 100)), nil); err != nil {
			t.Fatal(err)
		}
		o.Denials = sealer.Open
	})
	f.answered(call{method: "POST", path: "/policy", body: slotsPolicy, header: map[string]string{"Content-Type": "application/yaml"}}, nil)
	return f, sealer
}

func (f *fixture) hold(method, path string) (*weir.Scratch, weir.Decision) {
	f.Helper()
	s := new(weir.Scratch)
	d, err := f.decider.Decide(f.Context(), weir.Request{Method: method, Path: path, Keys: address{netip.MustParseAddr("192.0.2.7")}, Scratch: s})
	if err != nil {
		f.Fatal(err)
	}
	return s, d
}

// A held is what /keys tells of a window.
type held struct {
	Window                  string
	Count, Remaining, Reset int64
	InFlight                bool `json:"in_flight"`
}

func (f *fixture) windows(query string) []held {
	f.Helper()
	var got struct{ Windows []held }
	f.answered(call{method: "GET", path: "/keys?ip=192.0.2.7" + query}, &got)
	return got.Windows
}

func TestACallersSlotsAreShownAfterItsWindows(t *testing.T) {
	f, _ := newSlots(t)
	one, _ := f.hold("POST", "/ask")
	f.hold("POST", "/ask")
	f.hold("GET", "/poll")
	want := func(slots int64) {
		t.Helper()
		got := f.windows("")
		if len(got) != 4 || got[0].Count != 800 || got[0].InFlight || got[1].Count != 2 || got[1].Window != "60 requests per minute by ip" {
			t.Fatalf("the windows are %+v", got)
		}
		if got[2] != (held{"2 in flight by ip", slots, 2 - slots, 0, true}) || got[3] != (held{"1 in flight by ip", 1, 0, 0, true}) {
			t.Errorf("the slots are %+v", got[2:])
		}
	}
	want(2)
	f.answered(f.post("/keys/reset", `{"ip":"192.0.2.7","limiter":"poll","why":"x"}`), nil)
	if got := f.windows("&limiter=poll"); got[0].Count != 1 {
		t.Errorf("a reset has ended a request: %+v", got)
	}
	f.decider.End(t.Context(), one)
	want(1)
}

// A grant has one limit for each window, and slots are none.
func TestAGrantLeavesTheLimitInFlight(t *testing.T) {
	f, _ := newSlots(t)
	var got inspection
	f.answered(f.post("/keys/grant", `{"ip":"192.0.2.7","limiter":"ask","times":3,"for":"1h","why":"x"}`), &got)
	if got.String() != "ask 0/15000 until +3600, ask 0/180 until +3600, ask 0/2" {
		t.Errorf("three times the limits is %v", got)
	}
	// 90 is less than the cost, which the window of requests does not count
	f.answered(f.post("/keys/grant", `{"ip":"192.0.2.7","limiter":"ask","limits":[0,90],"for":"1h","why":"x"}`), &got)
	if got.Windows[1].Limit != 90 {
		t.Errorf("90 requests are granted as %+v", got.Windows[1])
	}
	f.refused(f.post("/keys/grant", `{"ip":"192.0.2.7","limiter":"ask","limits":[90,0],"for":"1h","why":"x"}`), 422, "limit_out_of_range")
	f.refused(f.post("/keys/grant", `{"ip":"192.0.2.7","limiter":"ask","limits":[0,90,3],"for":"1h","why":"x"}`), 422, "wrong_number_of_limits")
	f.refused(f.post("/keys/grant", `{"ip":"192.0.2.7","limiter":"poll","times":3,"for":"1h","why":"x"}`), 422, "in_flight")
}

func TestARefusalInFlightIsExplained(t *testing.T) {
	f, sealer := newSlots(t)
	f.hold("GET", "/poll")
	s, d := f.hold("GET", "/poll")
	if d.Allowed {
		t.Fatal("admitted beyond the limit in flight")
	}
	id := sealer.ID(&d, address{netip.MustParseAddr("192.0.2.7")}, s)
	var x admin.Denial
	f.answered(call{method: "GET", path: "/denials/" + id}, &x)
	if !x.InFlight || x.Reset != 0 || x.Count != 1 || x.Limit != 1 || x.Window != "1 in flight by ip" || x.Kinds != "ip" || !x.Same {
		t.Errorf("it is explained as %+v", x)
	}
	next := strings.ReplaceAll(slotsPolicy, "1 by ip", "3 by ip")
	f.answered(call{method: "POST", path: "/policy", body: next, header: map[string]string{"Content-Type": "application/yaml"}}, nil)
	f.answered(call{method: "GET", path: "/denials/" + id}, &x)
	if x.Same || x.Reads != "3 in flight by ip" {
		t.Errorf("under another policy it is explained as %+v", x)
	}
}
