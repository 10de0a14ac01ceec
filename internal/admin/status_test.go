package admin_test

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir/internal/admin"
)

// Of more than 200 addresses the status has those that are down first. It reports that it was cut,
// and counts all.
func TestTheStatusReportsThatAddressesAreLeftOut(t *testing.T) {
	for _, c := range []struct {
		up, down, shown, shownDown int
		cut                        bool
	}{{198, 2, 200, 2, false}, {198, 3, 200, 3, true}, {10, 300, 200, 200, true}, {0, 0, 0, 0, false}} {
		f := newFixture(t, func(o *admin.Options) {
			o.Upstreams = func() (all []admin.Upstream) {
				for i := range c.up + c.down {
					all = append(all, admin.Upstream{Site: "*", Address: fmt.Sprintf("http://192.0.2.1:%d", i+1), Up: i < c.up})
				}
				return all
			}
		})
		var got struct {
			Upstreams []admin.Upstream
			InAll     int  `json:"upstreams_in_all"`
			Down      int  `json:"upstreams_down"`
			Cut       bool `json:"upstreams_cut"`
		}
		f.answered(call{method: "GET", path: "/status"}, &got)
		down := 0
		for _, u := range got.Upstreams {
			if !u.Up {
				down++
			}
		}
		if len(got.Upstreams) != c.shown || down != c.shownDown || got.InAll != c.up+c.down || got.Down != c.down || got.Cut != c.cut {
			t.Errorf("%d up, %d down: it has %d, %d of them down; %d in all, %d down, cut %t", c.up, c.down, len(got.Upstreams), down, got.InAll, got.Down, got.Cut)
		}
	}
}
