package explain

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policyfile"
)

const settling = `limiters:
  - name: tokens
    routes: [POST /v1/*]
    windows: [100000 per day by ip, 60 requests per minute by ip]
    cost: {reserve: {from: json:max_tokens, times: 2, plus: 500, at_most: 8000}, from: json:usage.total_tokens}
    in_flight: 4 by ip+query:tenant
    chosen: yes
  - name: told
    routes: [/told]
    windows: [1000 per hour by ip]
    cost: {reserve: {from: header:X-Batch, plus: 10, at_most: 100}}
  - name: failed
    routes: [POST /login]
    windows: [5 per 15 minutes by ip]
    count: {status: [401, 403]}
    penalty: {after: 9 refusals per hour, refuse_for: hour}
  - name: served
    routes: [/served]
    windows: [5 per 15 minutes by ip]
    count: {not: [5xx]}
    requires: token
  - name: slots
    routes: [/slots]
    in_flight: 10 by ip
`

func settlingPolicy(t *testing.T) weir.Policy {
	t.Helper()
	f, err := policyfile.Parse("settling.yaml", []byte(settling))
	if err != nil {
		t.Fatal(err)
	}
	return f.Policy
}

func TestAnExplanationSaysWhatIsSettled(t *testing.T) {
	p := settlingPolicy(t)
	for _, test := range []struct {
		method, path             string
		reserve, costFrom, count string
		cost                     int64
		windows                  []string
		why                      []string
	}{
		{"POST", "/v1/chat?tenant=acme", "json:max_tokens, times 2, plus 500, at most 8000", "json:usage.total_tokens", "", 8000,
			[]string{"100000 per day by ip", "60 requests per minute by ip", "4 in flight by ip+query:tenant"},
			[]string{
				"before it is served, the request is charged what it tells itself: json:max_tokens, times 2, plus 500, at most 8000; a request that does not tell is charged 8000",
				"json:usage.total_tokens of the response tells what the request has cost",
				"each request holds one of 4 slots",
			}},
		{"GET", "/told", "header:X-Batch, plus 10, at most 100", "", "", 100, []string{"1000 per hour by ip"}, []string{"a request that does not tell is charged 100"}},
		{"POST", "/login", "", "", "status 401, 403", 1, []string{"5 per 15 minutes by ip"},
			[]string{"only a request with status 401 or 403 is counted", "the penalty counts refusals by the limiter, not statuses"}},
		{"GET", "/served", "", "", "not 5xx", 1, []string{"5 per 15 minutes by ip"}, []string{"a request with status 5xx is not counted", "a request without a verified token, which Weir answers 401: it is counted"}},
		{"GET", "/slots", "", "", "", 1, []string{"10 in flight by ip"}, []string{"each request holds one of 10 slots"}},
	} {
		var who Caller
		who.SetPlan("gold")
		e, err := Request(p, test.method, test.path, who)
		if err != nil {
			t.Fatal(err)
		}
		if e.Reserve != test.reserve || e.CostFrom != test.costFrom || e.Counts != test.count || e.Cost != test.cost {
			t.Errorf("%s: cost %d, reserve %q, cost from %q, counts %q", test.path, e.Cost, e.Reserve, e.CostFrom, e.Counts)
		}
		var windows []string
		for _, w := range e.Windows {
			windows = append(windows, w.Window)
			if w.InFlight != strings.Contains(w.Window, "in flight") || w.Requests != strings.Contains(w.Window, "requests") || w.InFlight && w.PerSeconds != 0 {
				t.Errorf("%s: %+v", test.path, w)
			}
		}
		if !slices.Equal(windows, test.windows) {
			t.Errorf("%s: windows %v, want %v", test.path, windows, test.windows)
		}
		for _, want := range test.why {
			if !slices.ContainsFunc(e.Why, func(why string) bool { return strings.Contains(why, want) }) {
				t.Errorf("%s: no %q in\n%s", test.path, want, strings.Join(e.Why, "\n"))
			}
		}
	}
}

// A slot by a parameter of the query is counted by its value, as a window is.
func TestSlotsAreExplainedByTheirKey(t *testing.T) {
	e, err := Request(settlingPolicy(t), "POST", "/v1/chat?tenant=acme", Caller{})
	if err != nil {
		t.Fatal(err)
	}
	counted := e.Windows[2].Counted
	if len(counted) != 2 || counted[1].Source != "query:tenant" || counted[1].Note != "" {
		t.Errorf("counted by %+v", counted)
	}
}

// What is given back bounds no number of requests, and what is used does not exceed the limit.
func TestTheExposureOfWhatIsSettled(t *testing.T) {
	p := settlingPolicy(t)
	address := Parties(p)[0]
	for i, want := range []struct{ requests, units string }{
		{"120", "≤200000"}, // the window of requests bounds them
		{"199", "≤1999"},   // the least that one reserves is 10
		{"10", "≤10"},      // a request that is given back has opened the window before the minute
		{"10", "≤10"},
		{"unbounded", "unbounded"},
	} {
		l := &p.Limiters[i]
		if requests, units := bound(Exposure(l, address, 60)), bound(ExposureInUnits(l, address, 60)); requests != want.requests || units != want.units {
			t.Errorf("%s: %s requests and %s units in 60 s, want %s and %s", l.Name, requests, units, want.requests, want.units)
		}
	}
}

func bound(b *Bound) string {
	if b == nil {
		return "unbounded"
	}
	return b.String()
}
