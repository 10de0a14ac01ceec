package verify

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
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
		{"no request is counted", countsRefusedLogins, reads(200), "outcome limit window fields-served"},
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
