package replay

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/target"
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
		"header:X-Tenant or header:X-Forwarded-Host": "the header X-Forwarded-Host",
	} {
		o := Options{Policy: policyOf(limiterOf(t, "all", "1 per minute by "+key)), Forwarded: -1, Keys: map[string]int{"header:X-Forwarded-Host": 2}}
		out := fromLog(t, o, logged("192.0.2.1", "-", "a", "here"))
		if lacks := out.Log.Lacks; len(lacks) != 1 || lacks[0].Source != "header:X-Tenant" || lacks[0].Instead != instead {
			t.Errorf("%s: lacks %+v, want the field, and instead %q", key, lacks, instead)
		}
	}
}

// A parameter is read from the log's own query, as the gateway reads it: a query that servers read
// differently is answered 400. The other sources are fields that the log must have.
func TestALogIsCountedByWhatItsRequestsCarry(t *testing.T) {
	asking := func(target string) string {
		return strings.Replace(logged("192.0.2.1", "-", "-", "-"), "/", target, 1)
	}
	o := Options{Policy: policyOf(limiterOf(t, "all", "1 per minute by query:tenant+ip")), Forwarded: -1}
	var kinds []target.Kind
	o.OnVerdict = func(v Verdict) { kinds = append(kinds, v.Kind) }
	out := fromLog(t, o, asking("/?tenant=a"), asking("/?x=1&tenant=%61"), asking("/?tenant=b"), asking("/?tenant=a&tenant=b"), asking("/?Tenant=c"))
	if want := []target.Kind{target.Plain, target.Plain, target.Plain, target.AmbiguousQuery, target.AmbiguousQuery}; !slices.Equal(kinds, want) {
		t.Errorf("kinds %v, want %v", kinds, want)
	}
	if l := out.Policy.Limiters[0]; l.Refused != 2 || len(out.Log.Lacks) != 0 {
		t.Errorf("%d refused, lacks %+v", l.Refused, out.Log.Lacks)
	}
	for source, values := range map[string][3]string{ // two of one budget, and one of another
		"host": {"Example.com:81", "example.com", "shop.example.com"}, "cookie:sid": {"a", `\"a\"`, "b"}, "claim:org.id": {"acme", "acme", "else"},
	} {
		o := Options{Policy: policyOf(limiterOf(t, "all", "1 per minute by ip+"+source)), Forwarded: -1, Keys: map[string]int{source: 1}}
		out := fromLog(t, o, logged("192.0.2.1", "-", values[0], "-"), logged("192.0.2.1", "-", values[1], "-"), logged("192.0.2.1", "-", values[2], "-"))
		if l := out.Policy.Limiters[0]; l.Refused != 1 || len(out.Log.Lacks) != 0 {
			t.Errorf("%s: %d refused, lacks %+v", source, l.Refused, out.Log.Lacks)
		}
		if source == "cookie:sid" { // servers differ about its value, so the server counts none
			out := fromLog(t, o, logged("192.0.2.1", "-", "x, sid=a", "-"), logged("192.0.2.1", "-", "y, sid=a", "-"))
			if l := out.Policy.Limiters[0]; l.Refused != 1 {
				t.Errorf("%s: %d of two spellings are refused, want one budget for both", source, l.Refused)
			}
		}
		o.Keys = nil
		if out := fromLog(t, o, logged("192.0.2.1", "-", "x", "-")); len(out.Log.Lacks) != 1 || out.Log.Lacks[0].Source != source {
			t.Errorf("%s: lacks %+v", source, out.Log.Lacks)
		}
	}
}
