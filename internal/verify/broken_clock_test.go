package verify_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/verify"
)

// If Date is wrong, but the verifier's clock and Retry-After agree, Reset is
// checked by these, and a note names Date.
func TestAWrongDateIsNotedAndTheRestIsVerified(t *testing.T) {
	for _, off := range []time.Duration{-10 * time.Minute, -90 * time.Second, 4 * time.Minute, time.Hour} {
		t.Run(fmt.Sprint(off), func(t *testing.T) {
			t.Parallel()
			a := newAPI(small())
			a.dated = func(now time.Time) string { return now.Add(off).UTC().Format(http.TimeFormat) }
			report := verified(t, a, these([]string{"widget-leads", "wp-plugin"}))
			for _, x := range report.Results {
				if x.Verdict == verify.Broken {
					t.Errorf("%s is reported as broken: %s", x.Clause, x.Detail)
				}
				if (x.Clause == "window" || x.Clause == "restored") && x.Verdict != verify.Kept {
					t.Errorf("%s is %s for %s: %s", x.Clause, x.Verdict, x.Limiter, x.Detail)
				}
			}
			if len(report.Notes) != 1 || !strings.HasPrefix(report.Notes[0], "Date is suspicious: ") {
				t.Errorf("it notes %q", report.Notes)
			}
		})
	}
}

// A wrong window is found with the verifier's clock even if Date is wrong as well.
func TestAWrongWindowIsFoundEvenWithAWrongDate(t *testing.T) {
	a := newAPI(small())
	a.dated = func(now time.Time) string { return now.Add(-10 * time.Minute).UTC().Format(http.TimeFormat) }
	a.breaks.edit = with(of(http.StatusBadRequest), resetField, plus(3600))
	report := verified(t, a, these([]string{"widget-leads"}))
	if broken := found(report, verify.Broken); len(broken["window"]) == 0 {
		t.Errorf("nothing is wrong with the window%s", describe(report.Results))
	}
}

// If the verifier's clock is wrong, it notes that, and reports nothing as broken.
func TestAVerifierWithAWrongClockNotesIt(t *testing.T) {
	for off, want := range map[time.Duration]string{0: "", 2 * time.Second: "", time.Hour: "this machine's clock is suspicious", -7 * time.Minute: "this machine's clock is suspicious"} {
		t.Run(fmt.Sprint(off), func(t *testing.T) {
			t.Parallel()
			a := newAPI(small())
			a.skew = off
			report := verified(t, a, these([]string{"widget-leads", "wp-plugin"}))
			if report.Broken() {
				t.Errorf("a clause is reported as broken%s", describe(report.Results))
			}
			if got := strings.Join(report.Notes, "; "); (got == "") != (want == "") || !strings.HasPrefix(got, want) {
				t.Errorf("it notes %q, want %q", got, want)
			}
		})
	}
}
