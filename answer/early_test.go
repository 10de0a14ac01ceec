package answer_test

import (
	"maps"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
)

// A front end may read the fields before Judge.Head, as for an informational response. They are
// those of the reservation, and those that it reads after Head are the same as without it.
func TestFieldsThatAreReadBeforeTheHeadAreSetAgain(t *testing.T) {
	for name, options := range map[string]answer.Options{"the contract's": {}, "IETF": {IETF: true}} {
		t.Run(name, func(t *testing.T) {
			policy := settling(func(l *weir.Limiter) { l.Actual = weir.Reading{Form: weir.ReadHeader, Name: "X-Cost"} })
			early, late := open(t, policy, options), open(t, policy, options)
			var before map[string]string
			settled := func(d *door, read bool) map[string]string {
				var a answer.Answer
				d.askInto(from("192.0.2.7", ""), chat, &a)
				if read {
					before = maps.Collect(a.Fields())
				}
				d.judge.Head(t.Context(), &a, 200, head("X-Cost: 3"))
				after := maps.Collect(a.Fields())
				d.judge.End(t.Context(), &a)
				return after
			}
			got, want := settled(early, true), settled(late, false)
			if !maps.Equal(got, want) || want["X-RateLimit-Remaining"] != "97" {
				t.Errorf("after the head the fields are %v, and without a look before it %v", got, want)
			}
			if before["X-RateLimit-Remaining"] != "90" || len(before) != len(want) {
				t.Errorf("before the head the fields are %v", before)
			}
			if _, ok := want["RateLimit"]; ok != options.IETF || ok && before["RateLimit"] == want["RateLimit"] {
				t.Errorf("the RateLimit field is %q, and then %q", before["RateLimit"], want["RateLimit"])
			}
		})
	}
}
