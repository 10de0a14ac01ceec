package policyfile_test

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policyfile"
)

// Clients send a name of other letters in its ASCII form (D33), so that is what is compared.
func TestAHostIsReadInItsASCIIForm(t *testing.T) {
	for written, want := range map[string]string{
		"bücher.example/*":             "xn--bcher-kva.example/*",
		"GET BÜCHER.Example./x":        "GET xn--bcher-kva.example/x",
		"*.bücher.example/*":           "*.xn--bcher-kva.example/*",
		"api.faß.example/x":            "api.xn--fa-hia.example/x",
		"例え。テスト/{tenant}/é*":           "xn--r8jz45g.xn--zckzah/{tenant}/é*",
		"ａｐｉ.example/x":                "api.example/x",
		"bu\u0308cher.example/*":       "xn--bcher-kva.example/*",
		"xn--bcher-kva.example/bücher": "xn--bcher-kva.example/bücher",
		"/bücher.example/*":            "/bücher.example/*",
	} {
		f, err := policyfile.Parse("p", fmt.Appendf(nil, "limiters: [{name: a, routes: [%q], windows: [9 per minute by ip]}]", written))
		if err != nil {
			t.Errorf("%s: %v", written, err)
			continue
		}
		got := f.Policy.Limiters[0].Routes[0]
		if got.String() != want {
			t.Errorf("%s is read as %s, want %s", written, got, want)
		}
		again, err := policyfile.Parse("p", policyfile.Marshal(f.Policy))
		if err != nil || again.Policy.Limiters[0].Routes[0] != got {
			t.Errorf("%s: written and read again: %v (%v)", written, again, err)
		}
		routes, err := weir.NewRoutes(f.Policy)
		if err != nil {
			t.Fatal(err)
		}
		if host := got.Host; host != "" && host[0] != '*' && routes.Match("GET", host+":443", got.Path).Limiter() == nil {
			t.Errorf("%s does not cover a request for its host", written)
		}
	}
}
