//go:build !race

// What runs here at the same time also does in the tests of each defect, with the race detector.

package verify_test

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir/internal/verify"
)

func TestACorrectServerIsNotReportedAsBrokenByChance(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	for seed := range uint64(80) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := newJitter(seed)
			a := newAPI(small())
			a.before, a.after = random.next, random.next
			a.skew = random.next()
			a.skew -= random.next()
			a.start += random.next() * 10
			if seed%5 == 0 {
				a.others = everyNth(int64(seed%7) + 2)
			}
			if seed%2 == 0 {
				a.dated = nil
			}
			for clause, results := range found(verified(t, a, these([]string{"widget-session", "wp-plugin"})), verify.Broken) {
				t.Errorf("%s is reported as broken%s", clause, describe(results))
			}
		})
	}
}
