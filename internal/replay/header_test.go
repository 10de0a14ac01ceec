package replay

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// A value of an HTTP field may be a secret, so a report shows its digest. Blanks around it do not
// count, as on a server, and a line without it is counted by the address.
func TestAFieldsValueIsCountedAndShownAsADigest(t *testing.T) {
	o := Options{Policy: policyOf(limiterOf(t, "all", "1 per minute by header:X-Tenant or ip")), Forwarded: -1, Keys: map[string]int{"header:X-Tenant": 1}, Paced: true}
	out := fromLog(t, o,
		logged("192.0.2.1", "-", "sk_live_one", "-"), logged("192.0.2.2", "-", "sk_live_one ", "-"), logged("192.0.2.3", "-", " sk_live_one", "-"),
		logged("192.0.2.1", "-", "sk_live_two", "-"),
		logged("192.0.2.1", "-", "SK_LIVE_TWO", "-"),
		logged("192.0.2.1", "-", "-", "-"), logged("192.0.2.1", "-", " ", "-"))
	l := out.Policy.Limiters[0]
	if got := names(l); l.Refused != 3 || len(got) != 2 || !regexp.MustCompile(`^header:X-Tenant #[0-9a-f]{8}$`).MatchString(got[0]) || got[1] != "ip 192.0.2.1" {
		t.Errorf("%d refused, worst %q", l.Refused, got)
	}
	if n := l.Windows[0].Callers.N; n != 4 {
		t.Errorf("%d callers, want two values in lower case, one in capitals, and one address", n)
	}
	if text, err := json.Marshal(out); err != nil || strings.Contains(strings.ToLower(string(text)), "live_") {
		t.Errorf("%v: the report has a value of the field:\n%s", err, text)
	}
	if len(out.Log.Lacks) != 0 {
		t.Errorf("lacks %+v", out.Log.Lacks)
	}
}

func TestALogWithoutTheFieldIsReported(t *testing.T) {
	for key, instead := range map[string]string{
		"header:X-Tenant":                            "the address",
		"header:X-Tenant or everyone":                "the budget of everyone",
		"header:X-Tenant or header:X-Forwarded-Host": "the field X-Forwarded-Host",
	} {
		o := Options{Policy: policyOf(limiterOf(t, "all", "1 per minute by "+key)), Forwarded: -1, Keys: map[string]int{"header:X-Forwarded-Host": 2}}
		out := fromLog(t, o, logged("192.0.2.1", "-", "a", "here"))
		if lacks := out.Log.Lacks; len(lacks) != 1 || lacks[0].Source != "header:X-Tenant" || lacks[0].Instead != instead {
			t.Errorf("%s: lacks %+v, want the field, and instead %q", key, lacks, instead)
		}
	}
}
