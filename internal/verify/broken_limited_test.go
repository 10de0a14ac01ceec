//go:build !race

// What runs here at the same time also does in TestADefectIsReportedOnlyForItsLimiter, with the
// race detector.

package verify_test

import (
	"testing"

	"github.com/weirlimit/weir/internal/verify"
)

// A verification with valid bodies, without waits, with one connection or without
// credentials sees less, but reports nothing wrongly as broken. Each runs with a
// part of the table.
func TestLimitedVerificationsReportNoOtherDefect(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	others := []string{"widget-init", "widget-leads"}
	ways := []struct {
		name   string
		change func(*verify.Options)
	}{
		{"valid bodies", func(o *verify.Options) { o.Real, o.Limiters = true, others }},
		{"quick", func(o *verify.Options) { o.Quick, o.Limiters = true, others }},
		{"one connection", func(o *verify.Options) { o.Workers, o.Limiters = 1, others }},
		{"no credentials", func(o *verify.Options) { o.Agent, o.Tokens, o.Limiters = "", nil, others }},
	}
	for i, d := range defects() {
		way := ways[i%len(ways)]
		t.Run(way.name+", "+d.name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(small())
			d.breaks(a)
			broken := found(verified(t, a, way.change), verify.Broken)
			accuse(t, broken, d.broken.clauses(nil))
		})
	}
}
