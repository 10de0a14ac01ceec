//go:build linux && !race

// Thousands of takes go over two sockets, with the race detector for a minute. The takes of
// TestEveryProcessOfAChainCountsToTheUnit, which are made at once, have it.

package handover

import (
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// A process counts as any store does after it has handed its counts over, and they were handed on
// from there.
func TestEveryProcessIsAStore(t *testing.T) {
	handOvers := 2 // the counts of one are asked for like those of two, over one link less
	if testing.Short() {
		handOvers = 1
	}
	storetest.Run(t, func(t *testing.T) (weir.Store, storetest.Clock) {
		o, clock := options(t)
		first := opened(t, o)
		for last, n := first, 0; n < handOvers; n++ {
			next := process(t, o)
			handOver(t, last, next)
			last = next
		}
		return first, clock
	})
}
