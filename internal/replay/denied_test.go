package replay

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policyfile"
)

func TestDeniedRequestsAreRefusedAndCountedByNoWindow(t *testing.T) {
	blocked, err := policyfile.ParseNetworks("blocked.txt", "blocked.txt", []byte("192.0.2.0/24\n"))
	if err != nil {
		t.Fatal(err)
	}
	open := policyOf(limiterOf(t, "all", "2 per minute by ip", "9 per hour by ip"))
	l := limiterOf(t, "all", "2 per minute by ip", "9 per hour by ip")
	l.Deny = []weir.Who{{Networks: blocked}}
	for _, paced := range []bool{false, true} {
		closed := policyOf(l)
		r := start(t, Options{Policy: open, Against: &closed, Paced: paced, Patience: time.Hour, Worst: 3})
		for i := range 3 {
			send(t, r, float64(i), "192.0.2.7")
			send(t, r, float64(i), "198.51.100.7")
		}
		out := report(t, r)
		one, two := out.Policy, *out.Against
		if one.Refused != 2 || one.Denied != 0 || two.Refused != 4 || two.Denied != 3 {
			t.Errorf("paced %v: refused %d, denied %d; with deny: refused %d, denied %d", paced, one.Refused, one.Denied, two.Refused, two.Denied)
		}
		of := two.Limiters[0]
		if of.Requests != 6 || of.Refused != 4 || of.Denied != 3 || of.Windows[0].Callers.N != 1 {
			t.Errorf("paced %v: %+v", paced, of)
		}
		if d := out.Difference; d.NewlyRefused != 2 || d.NewlyAdmitted != 0 {
			t.Errorf("paced %v: %+v", paced, d)
		}
		if paced && two.Delay == nil {
			t.Error("no delays")
		}
	}
}

func TestADenyingShadowIsReplayed(t *testing.T) {
	l := limiterOf(t, "all", "2 per minute by ip")
	l.Mode, l.Deny = weir.Shadow, []weir.Who{{Network: netip.MustParsePrefix("192.0.2.0/24")}}
	r := start(t, Options{Policy: policyOf(l)})
	send(t, r, 1, "192.0.2.7")
	send(t, r, 1, "198.51.100.7")
	if out := report(t, r).Policy; out.Shadow.Refused != 1 || out.Refused != 0 || out.Limiters[0].Denied != 1 {
		t.Errorf("%+v", out)
	}
}

// The lowest limit that touches few callers does not follow from a caller with an override by a
// file.
func TestACallerWithAnOverrideByAFileDoesNotFollowTheWindow(t *testing.T) {
	file, err := policyfile.ParseNetworks("partners", "partners", []byte("192.0.2.0/24\n"))
	if err != nil {
		t.Fatal(err)
	}
	l := limiterOf(t, "all", "5 per minute by ip")
	l.Overrides = []weir.Override{{Limit: 5, Per: time.Minute, For: weir.Who{Networks: file}}}
	r := start(t, Options{Policy: policyOf(l), Touch: 0.5})
	for range 5 {
		send(t, r, 1, "192.0.2.7")
	}
	send(t, r, 1, "198.51.100.7")
	if w := report(t, r).Policy.Limiters[0].Windows[0]; w.Recommend == nil || w.Recommend.Limit != 1 {
		t.Errorf("%+v", w.Recommend)
	}
}
