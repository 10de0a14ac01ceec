//go:build !race

// A hundred worlds each, of the same code as the few that are tested with the race detector.

package verify

import (
	"testing"

	"pgregory.net/rapid"
)

// A correct server is never reported as broken, for any policy, other callers,
// delays and losses.
func TestACorrectServerIsNotReportedAsBrokenInAnyWorld(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := drawWorld(r)
		seed := rapid.Uint64().Draw(r, "seed")
		if problem := w.verify(t, seed); problem != "" {
			r.Fatalf("%s\n%s", w.policy, problem)
		}
	})
}

// A correct server that settles is never reported as broken.
func TestACorrectServerThatSettlesIsNotReportedAsBrokenInAnyWorld(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := drawSettling(r)
		seed := rapid.Uint64().Draw(r, "seed")
		if problem := w.verify(t, seed); problem != "" {
			r.Fatalf("%s\n%+v\n%s", w.policy, w.settles, problem)
		}
	})
}
