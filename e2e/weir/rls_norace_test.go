//go:build !race_binary && !race

// The race detector would only make the reading of a large file slow: nothing else runs meanwhile.

package weir

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestAHundredThousandLimitsOfEnvoyAreServed(t *testing.T) {
	var b strings.Builder
	b.WriteString("domain: edge\ndescriptors:\n")
	for i := range 100_000 {
		fmt.Fprintf(&b, "  - {key: user, value: u%d, rate_limit: {unit: hour, requests_per_unit: %d}}\n", i, i%100+1)
	}
	s := serveRLS(t, rlsConfig(t, b.String()), nil, nil)
	for user, want := range map[string]string{"user=u0": "OK OK/0", "user=u99999": "OK OK/99", "user=u100000": "OK OK/0"} {
		if got := s.ask(t, rlsRequest("edge", 0, user)); got != want {
			t.Errorf("%s: %s, want %s", user, got, want)
		}
	}
	// Only Linux has this file.
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid)); err == nil {
		const most = 512 << 10 // KiB
		var used int
		_, after, _ := strings.Cut(string(text), "VmHWM:")
		if _, err := fmt.Sscan(after, &used); err != nil || used > most {
			t.Errorf("it has used %d KiB, %v: at most %d are expected", used, err, most)
		}
	}
	s.endRLS(t)
}
