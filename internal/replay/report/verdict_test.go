package report

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/replay"
)

// alone is made without its second policy.
func alone() *replay.Report {
	r := made()
	r.Against, r.Difference = nil, nil
	return r
}

func TestOneSentenceSummarizesTheResult(t *testing.T) {
	const under = "Under policy.yaml 42 of 10,000 requests (0.42 %) from 3 callers would have been refused"
	for _, test := range []struct {
		name   string
		change func(r *replay.Report)
		want   string
	}{
		{"one limiter", func(*replay.Report) {}, under + ", all by widget-leads."},
		{"several", func(r *replay.Report) { r.Policy.Limiters[2].Refused = 1 }, under + ", most by widget-leads."},
		{"several, the most by the last", func(r *replay.Report) { r.Policy.Limiters[2].Refused = 100 }, under + ", most by unasked."},
		{"nothing", func(r *replay.Report) { r.Policy.Refused = 0 }, "Under policy.yaml none of 10,000 requests would have been refused."},
		{"in shadow", func(r *replay.Report) { r.Policy.Refused, r.Policy.Shadow.Refused = 0, 5 },
			"Under policy.yaml none of 10,000 requests would have been refused; 5 by limiters that are in shadow."},
		{"one", func(r *replay.Report) {
			r.Policy.Refused, r.Policy.Requests, r.Policy.Touched.N = 1, 1, 1
		}, "Under policy.yaml 1 of 1 request (100 %) from 1 caller would have been refused, all by widget-leads."},
		{"estimated", func(r *replay.Report) { r.Policy.Touched.Estimated = true }, strings.Replace(under, "3 callers", "~3 callers", 1) + ", all by widget-leads."},
		{"unknown", func(r *replay.Report) { r.Policy.Unknown = 1234 },
			under + ", all by widget-leads; whether 1,234 more would have been is unknown, since the log lacks their agent."},
		{"truncated", func(r *replay.Report) { r.Partial = "interrupted" },
			"Only a part of the log was read: under policy.yaml 42 of 10,000 requests (0.42 %) from 3 callers would have been refused, all by widget-leads."},
		{"truncated, with nothing in it", func(r *replay.Report) { r.Partial, r.Policy.Requests = "interrupted", 0 }, "Only a part of the log was read: there is no request in the log."},
		{"no request", func(r *replay.Report) { r.Policy.Requests = 0 }, "There is no request in the log."},
		{"no limiter", func(r *replay.Report) { r.Policy.Limiters = nil }, "No limiter of policy.yaml covers any of 10,000 requests."},
		{"too little memory", func(r *replay.Report) { r.Policy.Shared = 1 }, "What would have been refused is unknown, since there was too little memory: give more --memory."},
		{"waiting", func(r *replay.Report) { r.Policy.Delay = &replay.Delay{Delayed: 40, GaveUp: 2, Max: 24} },
			under + " at first, all by widget-leads; 40 served after 24 s at most, 2 gave up."},
		{"out of order", func(r *replay.Report) { r.Log.OutOfOrder = 5000 },
			under + ", all by widget-leads; 5,000 requests came out of order, so this is not reliable."},
		{"requests missing", func(r *replay.Report) { r.Log.Dropped = 1 }, under + ", all by widget-leads; 1 request is missing in the log."},
		{"hostile", func(r *replay.Report) { r.Policy.Name = "a\x1b[2Jb" }, strings.Replace(under, "policy.yaml", `a\x1b[2Jb`, 1) + ", all by widget-leads."},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := alone()
			test.change(r)
			if got := Sentence(r); got != test.want {
				t.Errorf("%s: %s\nwant %s", test.name, got, test.want)
			}
		})
	}
	r := made()
	want := "From policy.yaml to new.yaml 30 of 10,000 requests (0.30 %) would have been newly refused, all by widget-leads, and 10 would have been admitted that are refused now."
	if got := Sentence(r); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	r.Difference.NewlyRefused, r.Difference.NewlyAdmitted, r.Difference.Unknown = 0, 0, 7
	want = "From policy.yaml to new.yaml none of 10,000 requests would have been newly refused; whether 7 would have been is unknown, since the log lacks their agent."
	if got := Sentence(r); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestTheSentenceHeadsTheTableAndThePage(t *testing.T) {
	r := alone()
	if text := table80(t, r); !strings.HasPrefix(strings.Join(strings.Fields(text), " "), Sentence(r)) {
		t.Errorf("the table begins with\n%.200s", text)
	}
	text := document(t, r)
	if at := strings.Index(text, `<p class="verdict">`+Sentence(r)+"</p>"); at < 0 || at > strings.Index(text, "<h2") {
		t.Errorf("the sentence stands at %d of the page", at)
	}
}

// unsureReport returns a report of two limiters, of which the first has an unknown window.
func unsureReport() *replay.Report {
	r := made()
	for _, o := range []*replay.Outcome{&r.Policy, r.Against} {
		o.Unknown = 500
		l := &o.Limiters[0]
		l.Unknown, l.Windows[0].Unknown, l.Doubt.Unknown = 500, 700, true
		l.Windows[0].Recommend = nil
		o.Limiters[2].Requests = 5
	}
	r.Log.Lacks = append([]replay.Lack{{Source: "agent", Limiters: []string{"widget-leads"}, Requests: 700}}, r.Log.Lacks...)
	r.Difference.Unknown = 500
	return r
}

func TestAnUnknownWindowIsShownInTableAndPage(t *testing.T) {
	text := strings.Join(strings.Fields(table80(t, unsureReport())), " ")
	for _, want := range []string{
		"whether 500 more would have been is unknown",
		"no agent in the log for 700 requests of widget-leads: windows that count by it are unknown; --key agent=FIELD names the field that has it",
		"42 of 10,000 requests refused (0.42 %), 500 more unknown;",
		"LIMITER REQUESTS REFUSED SHARE UNKNOWN",
		"widget-leads 9,000 42 0.47 % 500",
		"30 per minute by session or ip unknown 1000 per day by ip",
		"~ by the known windows only: another window is unknown",
		"UNKNOWN: the window counts by agent",
		"10 newly admitted (0.10 %), 500 more unknown;",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if plain := table80(t, made()); strings.Contains(strings.ToLower(plain), "unknown") {
		t.Errorf("all is known, and yet:\n%s", plain)
	}
	page := document(t, unsureReport())
	for _, want := range []string{
		`<td class="low" colspan="3">unknown: the log lacks the agent of 700 requests</td>`,
		"0.42 %, 500 more unknown", "whether 500 more would have been is unknown", "</span> admitted or unknown <span",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
}

func TestNoGatePassesByAWindowThatIsUnknown(t *testing.T) {
	r := unsureReport()
	r.Against.Delay = &replay.Delay{}
	for text, passes := range map[string]bool{
		"refused > 90%": false, "refused < 90%": false, "refused >= 0": false, "touched > 90%": false, "widget-leads.refused > 90%": false,
		"widget-leads.touched > 90%": false, "newly-refused > 90%": false, "newly-admitted > 90%": false, "newly-touched > 90%": false,
		"freed > 90%": false, "delayed > 90%": false, "gave-up > 90%": false, "widget-leads.newly-refused > 90%": false,
		"unasked.refused > 90%": true, "unlimited > 90%": true, "malformed > 90%": true,
		"unasked.newly-refused > 90%": false, // its requests may have had the other limiter before
	} {
		t.Run(text, func(t *testing.T) {
			v := judge(t, text, r)
			if v.Holds == passes {
				t.Errorf("%s: %v: %s", text, v.Holds, v.Measured)
			}
			if !passes && !strings.Contains(v.Measured, "a window is unknown") {
				t.Errorf("%s: %s", text, v.Measured)
			}
		})
	}
	if v := judge(t, "refused > 90%", made()); v.Holds {
		t.Errorf("all is known: %s", v.Measured)
	}
}
