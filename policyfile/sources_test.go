package policyfile_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policyfile"
)

// A source of an embedding service's own has a kind, and what is rejected and warned of goes by it.
func TestAServicesOwnSourcesHaveAKind(t *testing.T) {
	r := policyfile.Reader{Sources: append(weir.Sources(),
		weir.Source{Name: "customer", Kind: weir.Credential, Optional: true},
		weir.Source{Name: "tenant", Kind: weir.Chosen, Optional: true},
		weir.Source{Name: "form", Field: "NAME", Kind: weir.Chosen, Optional: true},
		weir.Source{Name: "undescribed"}, // nothing is known of it, so the caller may choose it
	)}
	const one = "limiters:\n  - name: all\n    routes: [/*]\n    "
	for key, chosen := range map[string]bool{
		"customer": false, "customer or ip": false, "ip+tenant": false, "customer+tenant": false,
		"tenant": true, "tenant or ip": true, "form:X-Tenant": true, "undescribed": true, "customer or tenant": true,
	} {
		t.Run(key, func(t *testing.T) {
			_, err := r.Parse("policy.yaml", []byte(one+"windows: [5 per minute by "+key+"]\n"))
			if rejected := err != nil && strings.Contains(err.Error(), "which the caller chooses"); rejected != chosen || err != nil && !chosen {
				t.Errorf("%s: %v, want it rejected: %v", key, err, chosen)
			}
			if !chosen {
				return
			}
			for windows, warned := range map[string]bool{"": true, ", 9 per hour by ip": false} {
				f, err := r.Parse("policy.yaml", []byte(one+"windows: [5 per minute by "+key+windows+"]\n    chosen: yes\n"))
				if err != nil {
					t.Fatalf("%s%s: %v", key, windows, err)
				}
				got := false
				for _, w := range f.Warnings {
					got = got || strings.Contains(w.Message, "it chooses the value")
				}
				if got != warned {
					t.Errorf("%s%s: warnings %v, want one: %v", key, windows, f.Warnings, warned)
				}
			}
		})
	}
}
