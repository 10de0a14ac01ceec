package policyfile_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policyfile"
)

// A source of an embedding service's own has a kind, and the warnings go by it.
func TestAServicesOwnSourcesHaveAKind(t *testing.T) {
	r := policyfile.Reader{Sources: append(weir.Sources(),
		weir.Source{Name: "customer", Kind: weir.Credential, Optional: true},
		weir.Source{Name: "tenant", Kind: weir.Chosen, Optional: true},
		weir.Source{Name: "cookie", Field: "NAME", Kind: weir.Chosen, Optional: true},
		weir.Source{Name: "undescribed"}, // nothing is known of it, so the caller may choose it
	)}
	const one = "limiters:\n  - name: all\n    routes: [/*]\n    "
	for key, warned := range map[string]bool{
		"customer": false, "customer or ip": false, "ip+tenant": false, "customer+tenant": false,
		"tenant": true, "tenant or ip": true, "cookie:X-Tenant": true, "undescribed": true, "customer or tenant": true,
	} {
		t.Run(key, func(t *testing.T) {
			f, err := r.Parse("policy.yaml", []byte(one+"windows: [5 per minute by "+key+"]\n"))
			if err != nil {
				t.Errorf("%s: %v", key, err)
				return
			}
			got := len(f.Warnings) == 1 && strings.Contains(f.Warnings[0].Message, "it chooses the value")
			if got != warned || len(f.Warnings) > 1 {
				t.Errorf("%s: warnings %v, want one: %v", key, f.Warnings, warned)
			}
			f, err = r.Parse("policy.yaml", []byte(one+"windows: [5 per minute by "+key+", 9 per hour by ip]\n"))
			if err != nil {
				t.Errorf("%s: %v", key, err)
				return
			}
			for _, w := range f.Warnings {
				if strings.Contains(w.Message, "it chooses the value") {
					t.Errorf("%s beside a window by ip: %v", key, w)
				}
			}
		})
	}
}
