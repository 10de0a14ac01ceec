package report

import (
	"html"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/mattn/go-runewidth"

	"github.com/weirlimit/weir/internal/replay"
)

const hostile = "agent \x1b[2J\u202e</script><script>alert(1)</script><img src=x onerror=alert(2)>"

const start = 1_800_000_000 // 2027-01-15 08:00:00 UTC

// made returns a report with every kind of figure in it.
func made() *replay.Report {
	series := func(n int) replay.Series {
		s := replay.Series{Start: start, Step: 30}
		for i := range n {
			s.Requests = append(s.Requests, int64(20+i%7))
			s.Refused = append(s.Refused, int64(max(0, i-n/2)%5))
		}
		return s
	}
	worst := []replay.Caller{
		{Name: "ip 192.0.2.7, " + hostile, Requests: 900, Refused: 42, First: start + 61, Last: start + 3000, Peak: 77},
		{Name: "ip 2001:db8:1:2::/64", Requests: 90, Refused: 2, First: start, Last: start, Peak: 31},
	}
	outcome := func(name string, refused int64) replay.Outcome {
		return replay.Outcome{
			Name: name, Version: "0123456789ab", Requests: 10_000, Unlimited: 12, Refused: refused,
			Callers: replay.Count{N: 1234}, Touched: replay.Count{N: 3}, Series: series(120),
			Limiters: []replay.Limiter{
				{Name: "widget-leads", Mode: "enforce", Requests: 9000, Refused: refused, Series: series(120), Worst: worst,
					Windows: []replay.Window{
						{Window: "30 per minute by session or ip", Limit: 30, Refused: refused, Callers: replay.Count{N: 1234}, Touched: replay.Count{N: 3},
							Peak: 77, Recommend: &replay.Recommend{Limit: 60, Touches: replay.Count{N: 1}, Share: 1. / 1234}},
						{Window: "1000 per day by ip", Limit: 1000, Callers: replay.Count{N: 1000, Estimated: true}, Peak: 412},
					}},
				{Name: "widget-other", Mode: "shadow", Requests: 988},
				{Name: "unasked", Mode: "enforce"},
			},
		}
	}
	r := &replay.Report{
		Log: replay.Log{Files: []string{"access.log", "-"}, Formats: []string{"combined", "json"}, Lines: 10_003, Requests: 10_000, Malformed: 3,
			Examples:   []replay.BadLine{{File: "access.log", Line: 17, Text: "GET \x1b]0;owned\a" + hostile, Reason: "it has no time"}},
			OutOfOrder: 2, Disorder: 7, From: start, To: start + 3600,
			Lacks: []replay.Lack{{Source: "session", Limiters: []string{"widget-leads"}, Requests: 9000, Instead: "address"}}},
		Policy: outcome("policy.yaml", 42),
	}
	against := outcome("new.yaml", 62)
	r.Against = &against
	r.Difference = &replay.Difference{NewlyRefused: 30, NewlyAdmitted: 10, NewlyTouched: replay.Count{N: 2}, Freed: replay.Count{N: 1},
		Limiters: []replay.Differences{{Name: "widget-leads", NewlyRefused: 30, NewlyAdmitted: 10}}, Worst: worst[:1], Series: series(120)}
	return r
}

func table80(t *testing.T, r *replay.Report) string {
	t.Helper()
	var b strings.Builder
	if err := Table(&b, r, 80); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTheTableShowsWhatIsInTheReport(t *testing.T) {
	text := table80(t, made())
	for _, want := range []string{
		"10,000 requests in 10,003 lines of access.log (combined), standard input (json)\n",
		"2027-01-15 08:00:00 to 09:00:00 UTC, 1 h\n",
		"3 lines malformed (0.030 %), and not counted",
		"no session in the log for 9,000 requests of widget-leads: counted by address;",
		"Under policy.yaml (0123456789ab): 42 of 10,000 requests refused (0.42 %); 3 of",
		"12 requests under no limiter",
		"widget-leads              9,000       42  0.47 %  |",
		"widget-other (shadow)       988        0     0 %\n",
		"  30 per minute by session or ip    1,234        3  0.24 %    77      60      1\n",
		"  1000 per day by ip               ~1,000        0     0 %   412\n",
		"No request met unasked.\n",
		"From policy.yaml to new.yaml: 30 of 10,000 requests newly refused (0.30 %)",
		"; 1 of 1,234\n  callers freed (0.081 %)\n",
		"access.log:17: it has no time\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
	for line := range strings.Lines(text) {
		if n := runewidth.StringWidth(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("a line is %d wide, on a terminal of 80: %s", n, line)
		}
	}
}

// A log contains what strangers have sent.
func TestNothingInALogActsOnATerminal(t *testing.T) {
	r := made()
	r.Log.Files[0] = "a\x1b[31m.log"
	r.Policy.Limiters[0].Windows[0].Window = "30 per minute by \x07session"
	text := table80(t, r)
	for _, c := range text {
		if c != '\n' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c)) {
			t.Fatalf("the table has the character %U:\n%q", c, text)
		}
	}
	if !strings.Contains(text, `"GET \x1b]0;owned\aagent \x1b[2J\u202e</script>`) {
		t.Errorf("the malformed line is not shown with its escapes spelled out:\n%s", text)
	}
}

func TestAPacedTableShowsTheDelays(t *testing.T) {
	r := made()
	r.Against, r.Difference = nil, nil
	r.Policy.Delay = &replay.Delay{}
	if text := table80(t, r); !strings.Contains(text, "No request had to wait.") {
		t.Errorf("nobody waited, and the table does not say it:\n%s", text)
	}
	d := &replay.Delay{Delayed: 42, GaveUp: 1, Mean: 3.25, P50: 2, P95: 59, P99: 60, Max: 3660}
	r.Policy.Delay, r.Policy.Limiters[0].Delay = d, d
	if text := table80(t, r); !strings.Contains(text, "42 of 10,000 requests refused at first\n") || !strings.Contains(text, "widget-leads       42        1  3.2 s   2 s  59 s  1 min  1 h 1 min\n") {
		t.Errorf("the delays are not in the table:\n%s", text)
	}
}

func TestSharesAreNeverRoundedToNothingOrAll(t *testing.T) {
	for _, c := range []struct {
		n, of int64
		want  string
	}{
		{0, 0, "–"}, {0, 9, "0 %"}, {9, 9, "100 %"}, {1, 10_000_000, "<0.001 %"}, {1, 10_000, "0.010 %"}, {3, 1000, "0.30 %"},
		{1, 3, "33.3 %"}, {9_999_999, 10_000_000, ">99.9 %"}, {999, 1000, "99.9 %"},
	} {
		if got := share(c.n, c.of); got != c.want {
			t.Errorf("share(%d, %d) = %s, want %s", c.n, c.of, got, c.want)
		}
	}
}

func TestASparklineShowsTheLeastRefusal(t *testing.T) {
	for _, c := range []struct {
		values []int64
		width  int
		want   string
	}{
		{nil, 5, ""}, {[]int64{0, 1, 0}, 5, " █ "}, {[]int64{1, 800, 0}, 5, "▁█ "}, {[]int64{1, 1, 2, 2, 0}, 3, "▄█ "}, {[]int64{8, 4, 1}, 3, "█▄▁"},
	} {
		if got := sparkline(c.values, c.width); got != c.want {
			t.Errorf("sparkline(%v, %d) = %q, want %q", c.values, c.width, got, c.want)
		}
	}
}

func TestDurationsAreForPeople(t *testing.T) {
	for seconds, want := range map[float64]string{0: "0 s", 0.25: "0.2 s", 2: "2 s", 9.96: "10 s", 59: "59 s", 60: "1 min", 61: "1 min 1 s", 3600: "1 h", 90_000: "1 d 1 h"} {
		if got := lasting(seconds); got != want {
			t.Errorf("lasting(%v) = %s, want %s", seconds, got, want)
		}
	}
}

func TestEstimatesAreMarked(t *testing.T) {
	r := made()
	r.Policy.Callers, r.Policy.Touched = replay.Count{N: 7_000_000, Estimated: true}, replay.Count{N: 30_000, Estimated: true}
	if text := strings.Join(strings.Fields(table80(t, r)), " "); !strings.Contains(text, "~30,000 of ~7,000,000 callers touched (~0.43 %)") {
		t.Errorf("estimates look exact:\n%s", text)
	}
	r.Against.Callers, r.Difference.NewlyTouched = replay.Count{N: 1000, Estimated: true}, replay.Count{N: 1010, Estimated: true}
	r.Policy.Callers, r.Difference.Freed = replay.Count{N: 400, Estimated: true}, replay.Count{N: 40, Estimated: true}
	r.Policy.Limiters[0].Windows[0].Callers, r.Policy.Limiters[0].Windows[0].Touched = r.Policy.Callers, r.Difference.Freed
	text, page := strings.Join(strings.Fields(table80(t, r)), " "), document(t, r)
	for _, want := range []string{"~1,010 of ~1,000 callers newly touched (~100 %); ~40 of ~400 callers freed (~10.0 %)", "by session or ip ~400 ~40 ~10.0 %"} {
		if !strings.Contains(text, want) {
			t.Errorf("it is not said that %q:\n%s", want, text)
		}
	}
	for _, want := range []string{"~1,010 <small>~100 % of callers", "~40 <small>~10.0 % of the first", "~400</td><td class=\"bad\">~40 <small>~10.0 %"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// A limiter in shadow refuses nothing, and is reported all the same.
func TestShadowsAreShownBesideTheSums(t *testing.T) {
	r := made()
	r.Against, r.Difference = nil, nil
	r.Policy.Shadow = replay.Shadow{Requests: 988, Alone: 9, Refused: 247}
	text, page := strings.Join(strings.Fields(table80(t, r)), " "), document(t, r)
	for _, want := range []string{"12 requests under no limiter that is enforced, 9 of them under one in shadow", "in shadow: 247 of 988 requests would be refused (25.0 %), and are not"} {
		if !strings.Contains(text, want) || !strings.Contains(page, want) {
			t.Errorf("it is not said that %q:\n%s", want, text)
		}
	}
}

// A penalty's refusals have a column of their own, and a sentence on the page. Without one there is
// neither.
func TestPenaltiesAreShownBesideTheRefusals(t *testing.T) {
	r := made()
	r.Against, r.Difference = nil, nil
	if text, page := table80(t, r), document(t, r); strings.Contains(text, "PENALIZED") || strings.Contains(page, "penalty") {
		t.Errorf("nobody was penalized:\n%s", text)
	}
	r.Policy.Limiters[0].Penalized = 17
	if text := table80(t, r); !regexp.MustCompile(`(?m)^LIMITER +REQUESTS +REFUSED +SHARE +PENALIZED  WHEN`).MatchString(text) ||
		!regexp.MustCompile(`(?m)^widget-leads +9,000 +42 +0.47 % +17  `).MatchString(text) || !regexp.MustCompile(`(?m)^widget-other \(shadow\) +988 +0 +0 % +0$`).MatchString(text) {
		t.Errorf("the table lacks the 17 that a penalty refused:\n%s", text)
	}
	if page := document(t, r); !strings.Contains(page, "42 of 9,000 requests refused (0.47 %), 17 of them by a penalty") {
		t.Error("the page lacks the 17 that a penalty refused")
	}
	r.Policy.Limiters[0].Unknown = 5
	if text := table80(t, r); !regexp.MustCompile(`(?m)^LIMITER +REQUESTS +REFUSED +SHARE +PENALIZED +UNKNOWN`).MatchString(text) {
		t.Errorf("both columns are wanted:\n%s", text)
	}
}

// Figures that may be wrong are marked.
func TestTooLittleMemoryIsReported(t *testing.T) {
	r := made()
	r.Policy.Shared, r.Policy.Limiters[0].Windows[0].Forgotten, r.Policy.Delay = 7, 8, &replay.Delay{NoRoom: 9}
	text := strings.Join(strings.Fields(table80(t, r)), " ")
	page := document(t, r)
	for _, want := range []string{"7 charges counted in budgets that callers share", "8 callers forgotten before their window had ended", "9 requests that would have waited were left out"} {
		if !strings.Contains(text, want) || !strings.Contains(page, want) {
			t.Errorf("it is not said that %q:\n%s", want, text)
		}
	}
	if warned := strings.Index(text, "figures are WRONG"); warned < 0 || warned > strings.Index(text, "Under policy.yaml") {
		t.Errorf("it is not said before the figures:\n%s", text)
	}
	if warned := strings.Index(page, "figures are WRONG"); warned < 0 || warned > strings.Index(page, "0123456789ab") {
		t.Error("the page does not say it before its figures")
	}
}

// What the figures leave out, or include unexpectedly, is reported.
func TestWhatALogHasThatCannotBeCountedIsReported(t *testing.T) {
	r := made()
	r.Log.Timeless, r.Log.NoAddress = 7, replay.NoAddress{Requests: 8, Example: "203.0.113.xxx\x1b[2J"}
	text := strings.Join(strings.Fields(table80(t, r)), " ")
	page := html.UnescapeString(document(t, r))
	for _, want := range []string{"7 lines with a time before 1970 or after 2104, and not counted",
		`no address in 8 requests, but "203.0.113.xxx\x1b[2J", for instance: by address, all of them are one caller`} {
		if !strings.Contains(text, want) || !strings.Contains(page, want) {
			t.Errorf("it is not said that %q:\n%s", want, text)
		}
	}
	if v := judge(t, "malformed > 9", r); !v.Holds || v.Measured != "10 of 10,003 lines" {
		t.Errorf("%+v: a line without a time that can be is as bad as one without a time", v)
	}
}

// A list that may be wrong is marked, and a correct one is not.
func TestDoubtsAboutTheWorstAreShown(t *testing.T) {
	said := func(r *replay.Report) string {
		return strings.Join(strings.Fields(table80(t, r)), " ") + strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(document(t, r), " ")), " ")
	}
	both := func(text, want string) {
		t.Helper()
		if n := strings.Count(text, want); n != 2 {
			t.Errorf("the table and the page say %q %d times, want once each:\n%s", want, n, text)
		}
	}
	if text := said(made()); strings.Contains(text, "~42") || strings.Contains(text, "~900") || strings.Contains(text, "at least") {
		t.Errorf("it is in doubt without any:\n%s", text)
	}
	r := made()
	r.Policy.Limiters[0].Doubt.Requests = true
	both(said(r), "~ at least: the memory was full, and callers were forgotten between their requests")
	if text := said(r); strings.Contains(text, "~42") || !strings.Contains(text, "42 ~900 ") {
		t.Errorf("refusals are in doubt, or requests are not:\n%s", text)
	}
	r = made()
	r.Difference.Doubt = replay.Doubt{Requests: true, Refused: true}
	both(said(r), "~ at least: the memory was full, callers were forgotten with what they were refused, and others may be missing here")
	both(said(r), "~42 ~900 ")
}
