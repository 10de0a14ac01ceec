package verify

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// settled verifies a policy on a server, whose answers a backend gives. wrap may break it.
func settled(t *testing.T, policy string, backend http.HandlerFunc, wrap func(http.Handler) http.Handler, change func(*Options)) (report *Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		handler := limited(t, policy, backend)
		if wrap != nil {
			handler = wrap(handler)
		}
		n := newNetwork()
		defer n.serving(handler)()
		o := n.options(policyOf(t, policy))
		if change != nil {
			change(&o)
		}
		report = verified(t, o)
	})
	return report
}

// reads answers with a status when it has read the body.
func reads(status int, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a client that has left gets no answer
		for _, f := range fields {
			name, value, _ := strings.Cut(f, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
	}
}

const (
	slotsAlone = `limiters:
  - {name: things, routes: [POST /things*], in_flight: "3 by header:X-Team", chosen: yes}
`
	slotsAndWindow = `limiters:
  - {name: things, routes: [POST /things*], windows: ["40 per 10 seconds by header:X-Team"], in_flight: "3 by header:X-Team", chosen: yes}
`
	countsRefusedLogins = `limiters:
  - {name: things, routes: [/things*], windows: ["12 per 10 seconds by header:X-Team"], count: {status: [401]}, chosen: yes}
`
	countsWrongLogins = `limiters:
  - {name: things, routes: [POST /things*], windows: ["5 per 10 seconds by header:X-Team"], count: {status: [401]}, chosen: yes}
`
	countsAllButMissing = `limiters:
  - {name: things, routes: [/things*], windows: ["40 per 10 seconds by header:X-Team"], count: {not: [404]}, chosen: yes}
`
	costsOfField = `limiters:
  - {name: things, routes: [POST /things*], windows: ["200 per 10 seconds by header:X-Team"], cost: {reserve: 20, from: header:X-Cost}, chosen: yes}
`
	requestsAndUnits = `limiters:
  - {name: things, routes: [POST /things*], windows: ["30 requests per 10 seconds by header:X-Team", "100 per 10 seconds by header:X-Team"], cost: 5, chosen: yes}
`
)

func notFoundElsewhere(w http.ResponseWriter, r *http.Request) {
	status := http.StatusOK
	if r.URL.Path != "/things" {
		status = http.StatusNotFound
	}
	reads(status)(w, r)
}

func TestACorrectServerKeepsWhatComesBack(t *testing.T) {
	for _, c := range []struct {
		name, policy string
		backend      http.HandlerFunc
		kept         string
	}{
		{"slots alone", slotsAlone, reads(422), "in-flight limit window fields-refused refused-status refused-body"},
		{"slots and a window", slotsAndWindow, reads(422), "in-flight remaining admitted restored refused-free fixed-window window limit separate"},
		{"no request is counted", countsRefusedLogins, reads(200), "limit window fields-served"},
		{"all requests are counted", countsRefusedLogins, reads(401), "remaining admitted restored fixed-window"},
		{"an error is not counted", countsAllButMissing, notFoundElsewhere, "outcome remaining admitted restored refused-free"},
		{"the answer reports the cost", costsOfField, reads(200, "X-Cost: 3"), "outcome limit window fields-served"},
		{"the answer reports more than was reserved", costsOfField, reads(200, "X-Cost: 50"), "outcome limit window fields-refused refused-body"},
		{"the answer reports nothing", costsOfField, reads(200), "limit window fields-refused"},
		{"requests beside units", requestsAndUnits, reads(422), "admitted limit window refused-free restored"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := settled(t, c.policy, c.backend, nil, nil)
			if r.Broken() {
				t.Errorf("a clause is broken:\n%s", table(r))
			}
			for clause := range strings.FieldsSeq(c.kept) {
				if got := verdictOf(t, r, clause); got.Verdict != Kept {
					t.Errorf("%s is %s: %s\n%s", clause, got.Verdict, got.Detail, table(r))
				}
			}
		})
	}
}

// What requests cost in the end is no evidence of when they are charged: only those that are under
// way together show that. If none were, the clause is not tested, and the reason is that.
func TestTheOutcomeIsUntestedIfNoRequestsWereUnderWayTogether(t *testing.T) {
	const costsOfBody = `limiters:
  - {name: things, routes: [POST /things*], windows: ["200 per 10 seconds by header:X-Team"], cost: {reserve: 20, from: "json:cost"}, chosen: yes}
`
	quick := func(o *Options) { o.Quick = true }
	for _, c := range []struct {
		name, policy string
		backend      http.HandlerFunc
		change       func(*Options)
		reason       Reason
		why          string
	}{
		{"quick", costsOfField, reads(200, "X-Cost: 3"), quick, NeedsMore, "none is waited for (quick)"},
		{"quick, with a status that is not counted", countsAllButMissing, notFoundElsewhere, quick, NeedsMore, "none is waited for (quick)"},
		{"a window that is too long to wait for", costsOfField, reads(200, "X-Cost: 3"), func(o *Options) { o.MaxWait = 5 * time.Second }, NeedsMore, "the longest wait is 5s"},
		{"the cost is in the body", costsOfBody, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"cost":3}`)
		}, nil, Unobservable, "no field of the answer shows what a request has cost"},
		{"no status is counted", countsRefusedLogins, reads(200), nil, Unobservable, "no request was answered with a status that is counted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := settled(t, c.policy, c.backend, nil, c.change)
			got := verdictOf(t, r, "outcome")
			if got.Verdict != Untested || got.Reason != c.reason || !strings.Contains(got.Detail, "charged before they are served") || !strings.Contains(got.Detail, c.why) {
				t.Errorf("outcome is %s, %s: %s\n%s", got.Verdict, got.Reason, got.Detail, table(r))
			}
		})
	}
}
