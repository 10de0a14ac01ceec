package live_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// The log says that counts continue, and names the windows whose counts do not.
func TestTheLogNamesTheWindowsThatBeginAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, nil)
		looks(2)
		replaceBy := func(windows, want string) {
			t.Helper()
			before := len(f.log.String())
			f.replace("limiters:\n  - name: all\n    routes: [/*]\n    windows: [" + windows + "]\n")
			looks(2)
			if line := f.log.String()[before:]; !strings.Contains(line, want) || strings.Contains(want, "anew") != strings.Contains(line, "anew") {
				t.Errorf("%s: the log has\n%s\nwant %s", windows, line, want)
			}
		}
		replaceBy("2 per minute by ip", `msg="the policy was replaced; counts continue" `)
		replaceBy("2 per minute by ip, 9 per calendar day in Europe/Berlin by ip", ` anew="all: 9 per calendar day in Europe/Berlin by ip"`)
		replaceBy("3 per minute by ip, 8 per calendar day in Europe/Berlin by ip", `msg="the policy was replaced; counts continue" `)
		replaceBy("3 per minute by ip, 8 per calendar day in Europe/Vienna by ip",
			`msg="the policy was replaced; counts continue, except those of windows that begin anew" `)
		replaceBy("3 per minute by token or ip, 8 per calendar day in Europe/Berlin by ip",
			` anew="all: 3 per minute by token or ip, all: 8 per calendar day in Europe/Berlin by ip"`)
		var many strings.Builder
		many.WriteString("limiters:\n")
		for i := range 12 {
			fmt.Fprintf(&many, "  - {name: l%d, routes: [/%d], windows: [2 per minute by ip]}\n", i, i)
		}
		f.replace(many.String())
		looks(2)
		if log := f.log.String(); !strings.Contains(log, `, l9: 2 per minute by ip, 2 more"`) || strings.Contains(log, "l10:") {
			t.Errorf("the log has\n%s", log)
		}
	})
}
