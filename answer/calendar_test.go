package answer_test

import (
	"testing"

	"github.com/weirlimit/weir/answer"
)

// A calendar's window has no w, because its spans differ in length, and its own name beside another
// window. Reset is the instant at which it ends, and Retry-After leads to it.
func TestTheFieldsOfACalendarsWindow(t *testing.T) {
	d := open(t, limiters(t, map[string][]string{
		"plan POST /api/v1/widget/typing": {"1 per calendar month in Europe/Berlin from day 15 by ip", "1 per 31 days by ip"},
	}), answer.Options{IETF: true})
	d.ask(fromHome, post("typing"))
	_, got := d.ask(fromHome, post("typing"))
	for name, want := range map[string]string{
		"X-RateLimit-Reset": "1802678400", "Retry-After": "2678400",
		"RateLimit":        `"plan 2678400s by ip";r=0;t=2678400, "plan calendar month in Europe/Berlin from day 15 by ip";r=0;t=2646000`,
		"RateLimit-Policy": `"plan 2678400s by ip";q=1;w=2678400, "plan calendar month in Europe/Berlin from day 15 by ip";q=1`,
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}

	d = open(t, limiters(t, map[string][]string{"plan POST /api/v1/widget/typing": {"1 per calendar month in Europe/Berlin from day 15 by ip"}}), answer.Options{})
	d.ask(fromHome, post("typing"))
	_, got = d.ask(fromHome, post("typing"))
	// until 15 February, 0:00 in Berlin
	if got["X-RateLimit-Reset"] != "1802646000" || got["Retry-After"] != "2646000" {
		t.Errorf("the Reset is %s and Retry-After %s", got["X-RateLimit-Reset"], got["Retry-After"])
	}
}
