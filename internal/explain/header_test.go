package explain

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weirlimit/weir"
)

func policyBy(t *testing.T, key string) weir.Policy {
	t.Helper()
	w, err := weir.ParseWindow("5 per minute by " + key)
	if err != nil {
		t.Fatal(err)
	}
	chosen := slices.ContainsFunc(slices.Concat(w.Key...), func(source string) bool { return weir.SourceOf(source).Kind == weir.Chosen })
	return weir.Policy{Limiters: []weir.Limiter{{Name: "all", Chosen: chosen, Routes: []weir.Route{{Path: "/", Prefix: true}}, Windows: []weir.Window{w}}}}
}

// An explanation names the field that counts, but not its value, which may be a secret.
func TestAFieldIsCountedBeforeTheAddress(t *testing.T) {
	for _, c := range []struct{ key, header, want string }{
		{"header:X-Api-Key or ip", "sk_live", "[{header:X-Api-Key <header> }]"},
		{"header:X-Api-Key or ip", "", "[{ip 192.0.2.7 no header X-Api-Key}]"},
		{"header:X-Api-Key", "", "[{ip 192.0.2.7 no header X-Api-Key}]"},
		{"header:X-Other or header:X-Api-Key", "", "[{ip 192.0.2.7 no header X-Other, no header X-Api-Key}]"},
		{"session or header:X-Api-Key", "", "[{ip 192.0.2.7 no verified session, no header X-Api-Key}]"},
		{"session or header:X-Api-Key", "sk_live", "[{header:X-Api-Key <header> no verified session}]"},
		{"ip+header:X-Api-Key", "sk_live", "[{ip 192.0.2.7 } {header:X-Api-Key <header> }]"},
		{"header:X-Api-Key or everyone", "", "[{everyone alike no header X-Api-Key}]"},
	} {
		var who Caller
		if err := who.SetIP("192.0.2.7"); err != nil {
			t.Fatal(err)
		}
		who.Set("header:X-Api-Key", c.header)
		e, err := Request(policyBy(t, c.key), "GET", "/", who)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(e.Windows[0].Counted); got != c.want {
			t.Errorf("%s, field %q: %s, want %s", c.key, c.header, got, c.want)
		}
	}
}

// The caller chooses the value, so a window by it bounds no address, no session and no token; only
// beside a window by ip, or with a source that has one value for a party, is there a bound.
func TestAWindowByAFieldBoundsNobodyAlone(t *testing.T) {
	for key, want := range map[string]string{
		"header:X-Api-Key":             "----",
		"header:X-Api-Key or ip":       "----",
		"ip+header:X-Api-Key":          "----",
		"session or header:X-Api-Key":  "-5--",
		"header:X-Api-Key or everyone": "----",
		"everyone":                     "5555",
	} {
		t.Run(key, func(t *testing.T) {
			got := ""
			l := &policyBy(t, key).Limiters[0]
			for _, p := range Parties(weir.Policy{}) {
				switch b := Exposure(l, p, 60); {
				case !p.Served(l):
					got += "."
				case b == nil:
					got += "-"
				default:
					got += fmt.Sprint(b.Requests / 2)
				}
			}
			if got != want {
				t.Errorf("%s: %s, want %s of one address, session, token, everybody", key, got, want)
			}
		})
	}
}

// A caller with a claim has the session that it is read from. What is named after a colon is not
// shown, and a parameter that the path has is known without being named.
func TestWhatACallerSendsIsExplainedBySource(t *testing.T) {
	for _, c := range []struct{ key, path, source, value, want string }{
		{"claim:org or ip", "/", "claim:org", "acme", "[{claim:org <claim> }]"},
		{"claim:org or session", "/", "claim:plan", "gold", "[{session <session> no claim org}]"},
		{"token or claim:org", "/", "", "", "[{ip 192.0.2.7 no verified token, no claim org}]"},
		{"ip+cookie:sid", "/", "cookie:sid", "a", "[{ip 192.0.2.7 } {cookie:sid <cookie> }]"},
		{"ip+host", "/", "host", "example.com", "[{ip 192.0.2.7 } {host example.com }]"},
		{"ip+host", "/", "", "", "[{ip 192.0.2.7 } {ip 192.0.2.7 no host}]"},
		{"ip+query:tenant", "/?tenant=a", "", "", "[{ip 192.0.2.7 } {query:tenant <query> }]"},
		{"ip+query:tenant", "/?tenant=", "", "", "[{ip 192.0.2.7 } {ip 192.0.2.7 no query tenant}]"},
		{"ip+query:tenant", "/?tenant=a&tenant=b", "", "", "[{ip 192.0.2.7 } {ip 192.0.2.7 no query tenant}]"},
	} {
		var who Caller
		if err := who.SetIP("192.0.2.7"); err != nil {
			t.Fatal(err)
		}
		who.Set(c.source, c.value)
		e, err := Request(policyBy(t, c.key), "GET", c.path, who)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(e.Windows[0].Counted); got != c.want {
			t.Errorf("%s at %s with %s: %s, want %s", c.key, c.path, c.source, got, c.want)
		}
	}
}
