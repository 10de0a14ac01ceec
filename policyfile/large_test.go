package policyfile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policyfile"
)

func TestAFileBeyondTheLimitIsNotLookedAt(t *testing.T) {
	_, err := policyfile.Parse("big.yaml", append([]byte("limiters: []\n"), make([]byte, policyfile.MaxSize)...))
	if err == nil || !strings.Contains(err.Error(), "big.yaml: the file is too large: at most 1048576 bytes (1 MiB) are allowed") {
		t.Errorf("a file of more than 1 MiB: %v", err)
	}
	if _, err := policyfile.Load("/dev/zero"); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("a file without an end: %v", err)
	}
}

func TestTheMostLimitersStillFit(t *testing.T) {
	var b strings.Builder
	b.WriteString("limiters:\n")
	for i := range policyfile.MaxLimiters {
		fmt.Fprintf(&b, "  - name: the-limiter-number-%d\n    routes: [POST /api/v1/number-%d/messages*, /api/v1/events-%d*, /v1/other-%d/*]\n", i, i, i, i)
		b.WriteString("    windows:\n      - 1000 per minute by ip+agent\n      - 30000 per hour by ip\n    cost: 2\n    message: bulk-sync\n    on_store_failure: deny\n")
	}
	f, err := policyfile.Parse("large.yaml", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Policy.Limiters) != policyfile.MaxLimiters {
		t.Errorf("%d limiters", len(f.Policy.Limiters))
	}
}

func TestTheMostPlansStillFit(t *testing.T) {
	for n, fits := range map[int]bool{weir.MaxPlans: true, weir.MaxPlans + 1: false} {
		var b strings.Builder
		b.WriteString("limiters:\n  - name: a\n    windows: [60 per minute by token or ip]\n    plans:\n      by: token\n")
		for i := range n {
			fmt.Fprintf(&b, "      plan-%d: %d per minute\n", i, i+1)
		}
		f, err := policyfile.Parse("plans.yaml", []byte(b.String()))
		if fits != (err == nil) || fits && len(f.Policy.Limiters[0].Plans.List) != n {
			t.Errorf("%d plans: %v", n, err)
		}
	}
}
