//go:build !race

// One goroutine visits a million states, which the race detector would only slow down.

package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
)

// The worlds are small, and have different things that happen in them.
var (
	calmWorld     = leaseWorld{nodes: 2, limit: 3, length: 3, end: 4, want: 2}
	aloneWorld    = leaseWorld{nodes: 1, limit: 2, length: 2, end: 5, want: 1, repeats: true}
	resetWorld    = leaseWorld{nodes: 2, limit: 2, length: 2, end: 2, want: 1, resets: 1}
	failoverWorld = leaseWorld{nodes: 2, limit: 2, length: 2, end: 2, want: 1, failed: 1}
	stormyWorld   = leaseWorld{nodes: 1, limit: 2, length: 2, end: 2, want: 1, resets: 1, failed: 1}
)

const modelStates = 1_000_000

func TestLeasesNeverAdmitOverTheLimit(t *testing.T) {
	states := 0
	for name, world := range map[string]leaseWorld{
		"nodes alone":              calmWorld,
		"one node":                 aloneWorld,
		"one node with both":       stormyWorld,
		"with an operator's reset": resetWorld,
		"with a failover":          failoverWorld,
	} {
		world.fault = sound
		found := world.search(modelStates)
		states += found.states
		t.Logf("%s: %d states", name, found.states)
		if found.states >= modelStates {
			t.Errorf("%s: the search ended at %d states and did not visit all: make the world smaller", name, found.states)
		}
		if found.violation != "" {
			t.Errorf("%s: %s:\n%s", name, found.violation, timeline(found.trace, world.nodes))
		}
	}
	if states < 1_000_000 {
		t.Errorf("the search visited %d states, want at least a million: the worlds are too small to show anything", states)
	}
}

func TestEveryFaultPlantedInLeasesIsFound(t *testing.T) {
	for fault, world := range map[leaseFault]leaseWorld{
		unguardedDrift:    calmWorld,
		deadlineAtAnswer:  calmWorld,
		sleepingClock:     calmWorld,
		uncutGrant:        calmWorld,
		unchargedGrant:    calmWorld,
		answerTwice:       calmWorld,
		mergedWindows:     stormyWorld,
		returnTwice:       calmWorld,
		returnKept:        calmWorld,
		returnAnyReset:    aloneWorld,
		returnAnyGen:      stormyWorld,
		pocketKeptByReset: resetWorld,
		returnAnyEpoch:    stormyWorld,
	} {
		t.Run(string(fault), func(t *testing.T) {
			world.fault = fault
			found := world.search(modelStates)
			if found.violation == "" {
				t.Fatalf("no violation in %d states: the search would miss this fault in the protocol", found.states)
			}
			t.Logf("%s after %d steps, in %d states", found.violation, len(found.trace)-1, found.states)
		})
	}
}

// timeline prints the states of a trace, the first first.
func timeline(trace []modelState, nodes uint8) string {
	var b strings.Builder
	for i := len(trace) - 1; i >= 0; i-- {
		s := &trace[i]
		fmt.Fprintf(&b, "at %d: store %+v, counts %v, admitted %v\n", s.now, s.store, s.counts, s.admitted)
		for k := range nodes {
			fmt.Fprintf(&b, "      node %d: %+v\n", k, s.nodes[k])
		}
	}
	return b.String()
}
