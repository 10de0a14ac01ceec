package answer_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
)

// withSlots is withUsage, where /open has two requests in flight at most.
func withSlots(t *testing.T) weir.Policy {
	p := withUsage(t, "")
	p.Limiters[1].InFlight = weir.InFlight{Limit: 2, Key: p.Limiters[1].Windows[0].Key}
	return p
}

// Slots have neither a length nor a reset, so usage shows none.
func TestUsageShowsALimitInFlightWithoutAReset(t *testing.T) {
	d := open(t, withSlots(t), answer.Options{})
	me := from("192.0.2.1", "")
	a, _ := d.ask(me, get("/open"))
	if a.Outcome != answer.Admitted {
		t.Fatalf("the outcome is %v", a.Outcome)
	}
	a, _ = d.ask(me, get("/usage"))
	const want = `{"limiter":"open","window":"2 in flight by token or ip","per_seconds":null,"limit":2,"used":1,"remaining":1,"reset":null,"reset_time":null,` +
		`"counted_by":["ip"],"shared":false,"exempt":false,"penalty":false,"in_flight":true,"state":"counted"}`
	if got := string(a.Body()); !strings.Contains(got, want) || !strings.Contains(got, `"window":"10 per minute by token or ip","per_seconds":60,`) {
		t.Errorf("usage is\n%s\nwant in it\n%s", got, want)
	}
}

func TestTheDraftsFieldsSayWhatIsInFlight(t *testing.T) {
	d := open(t, withSlots(t), answer.Options{IETF: true})
	me := from("192.0.2.1", "")
	const policy = `"open 60s by token or ip";q=10;w=60, "open in flight by token or ip";q=2;qu="concurrent-requests"`
	for i, limits := range []string{
		`"open 60s by token or ip";r=9;t=60, "open in flight by token or ip";r=1`,
		`"open 60s by token or ip";r=8;t=60, "open in flight by token or ip";r=0`,
		// refused: the limit in flight binds
		`"open in flight by token or ip";r=0, "open 60s by token or ip";r=8;t=60`,
	} {
		_, fields := d.ask(me, get("/open"))
		if fields["RateLimit"] != limits {
			t.Errorf("RateLimit is %s, want %s", fields["RateLimit"], limits)
		}
		if got := fields["RateLimit-Policy"]; i < 2 && got != policy {
			t.Errorf("RateLimit-Policy is %s, want %s", got, policy)
		}
	}
}
