package explain

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policyfile"
)

func TestTheLineThatExemptsOrDeniesIsNamed(t *testing.T) {
	set := func(name, text string) weir.Who {
		n, err := policyfile.ParseNetworks(name, name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return weir.Who{Networks: n}
	}
	p := policyBy(t, "ip")
	p.Limiters[0].Exempt = []weir.Who{set("office.txt", "192.0.2.0/24\n10.0.0.0/8")}
	p.Limiters[0].Deny = []weir.Who{set("blocked.txt", "198.51.100.7\n10.9.0.0/16\n"), {Token: "abc"}}
	for address, want := range map[string]string{
		"192.0.2.7":    "@office.txt (192.0.2.0/24) is exempt: counted, and never refused",
		"198.51.100.7": "@blocked.txt (198.51.100.7) is denied: answered 403, and not counted",
		"10.9.1.1":     "@blocked.txt (10.9.0.0/16) is denied: answered 403, and not counted; @office.txt (10.0.0.0/8) is exempt, which has no effect on a denied caller",
		"203.0.113.7":  "",
	} {
		var who Caller
		if err := who.SetIP(address); err != nil {
			t.Fatal(err)
		}
		e, err := Request(p, "GET", "/", who)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, reason := range e.Why {
			if strings.Contains(reason, "exempt") || strings.Contains(reason, "denied") {
				got = append(got, reason)
			}
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	var who Caller
	who.Set("token", "abc")
	e, err := Request(p, "GET", "/", who)
	if err != nil || !strings.Contains(strings.Join(e.Why, "; "), "token abc is denied") {
		t.Errorf("%+v, %v", e, err)
	}
}
