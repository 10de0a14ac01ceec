package redisstore

import "testing"

// A connection that ends ends the epoch. Until a server has answered on another one, what was
// charged before outlives that.
func TestAnEpochIsOutlivedUntilAServerAnswers(t *testing.T) {
	e, before, after := new(epoch), uint64(0), uint64(0)
	check := func(what string, of uint64, slot int, lasts, outlives bool) {
		t.Helper()
		if e.lasts(of, slot) != lasts || e.outlives(of, slot) != outlives {
			t.Errorf("%s: it lasts: %t, is outlived: %t; want %t and %t", what, e.lasts(of, slot), e.outlives(of, slot), lasts, outlives)
		}
	}
	before = e.now()
	check("at first", before, -1, true, true)
	e.endOf("a:1")
	check("the connection has ended", before, -1, false, true)
	e.endOf("a:1")
	waits := e.now()
	check("another one is dialed", before, -1, false, true)
	check("a take that waits for it", waits, -1, true, true)
	e.answers("a:1")
	after = e.now()
	check("a server has answered", before, -1, false, false)
	check("a take from before that, on whichever connection", waits, -1, true, false)
	check("a take after it", after, -1, true, true)
	e.replace()
	check("another server", after, -1, false, false)
}

// On a cluster that holds for each machine.
func TestAnEpochOfAClusterIsOutlivedOnItsOwnMachine(t *testing.T) {
	e, owners := new(epoch), slotOwners{known: map[string]bool{"a:1": true, "b:1": true, "c:1": true}}
	for i := range owners.owner {
		owners.owner[i] = []string{"a:1", "b:1"}[i%2]
	}
	next := owners
	e.learn(&owners)
	of := e.now()
	e.endOf("a:1")
	e.endOf("b:1")
	e.answers("b:1")
	if e.lasts(of, 0) || !e.outlives(of, 0) {
		t.Error("a machine that is gone is not outlived, because another one has answered")
	}
	if e.outlives(of, 1) {
		t.Error("a machine that has answered on another connection is outlived")
	}
	next.owner[0] = "c:1" // a promoted replica
	e.learn(&next)
	if e.outlives(of, 0) || !e.outlives(of, 2) {
		t.Errorf("a slot has another owner: it is outlived: %t; one that has not: %t", e.outlives(of, 0), e.outlives(of, 2))
	}
}
