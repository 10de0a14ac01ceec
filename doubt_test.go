package weir_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// A doubtful caller has a session that is not verified before Resolve.
type doubtful struct {
	session        string // empty: it turns out to be a bad one
	asked, isKnown bool
	resolved       int
}

func (c *doubtful) AppendKey(dst []byte, source string) ([]byte, bool) {
	if source != "session" {
		return me.AppendKey(dst, source)
	}
	c.asked = true
	return append(dst, c.session...), c.isKnown && c.session != ""
}

func (c *doubtful) Unchecked() bool { return c.asked && !c.isKnown }
func (c *doubtful) Resolve()        { c.isKnown = true; c.resolved++ }

// A caller in doubt is refused as one without the credential, or has it verified and is charged
// once (D16).
func TestACredentialInDoubtIsVerifiedOnlyIfTheRequestIsAdmittedWithoutIt(t *testing.T) {
	l := plus("10 per minute by session or ip", "100 per hour by ip")
	l.Cost = 7 // of a body; the least is 5
	k := newDesk(t, policyOf(l), nil)
	v := &visit{desk: k}
	send := func(c *doubtful, units int64) {
		t.Helper()
		if err := v.d.DecideInto(t.Context(), &weir.Request{Limiters: []string{"l"}, Keys: c, Scratch: &v.scratch, Reporter: &body{units: units}}, &v.got); err != nil {
			t.Fatal(err)
		}
		v.end()
	}
	for _, step := range []struct {
		session  string
		units    int64
		want     string // as desk.want has it
		resolved int
		counts   string // of the address
	}{
		{"s", 0, "allowed 10 5 60 0", 1, "0 5"},  // the address is charged by the hour
		{"", 0, "allowed 10 5 60 0", 1, "5 10"},  // a bad one
		{"", 2, "refused 10 0 60 60", 0, "5 10"}, // only the least would fit
		{"s", 0, "allowed 10 0 60 0", 1, "5 15"},
		{"", 0, "allowed 10 0 60 0", 1, "10 20"},
		{"s", 0, "refused 10 0 60 60", 0, "10 20"},
		{"t", 0, "refused 10 0 60 60", 0, "10 20"}, // it may come again once it can be verified
	} {
		c := &doubtful{session: step.session}
		send(c, step.units)
		k.want(v.got, step.want)
		if c.resolved != step.resolved {
			t.Errorf("session %q of %d units is verified %d times, want %d", step.session, step.units, c.resolved, step.resolved)
		}
		k.counts("l", step.counts)
	}
	v.clock.Advance(time.Minute)
	c := &doubtful{}
	for range 2 { // a caller without doubt is asked nothing
		c.isKnown = true
		send(c, 0)
	}
	if c.resolved != 0 {
		t.Error("a caller that is in no doubt is resolved")
	}
}
