//go:build !race

// What runs here at the same time also does in TestADefectIsReportedOnlyForItsLimiter, with the
// race detector.

package verify_test

import (
	"testing"
)

func TestEachDefectIsFoundByItsClause(t *testing.T) {
	for _, d := range defects() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(small())
			d.breaks(a)
			check(t, d, verified(t, a, these(d.on())))
		})
	}
}
