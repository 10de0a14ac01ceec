package memstore

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/storetest"
)

// A second ends while a take freezes its windows. When it reads the clock again all of them are
// frozen, so that nobody sees one of them in the next second before the take is counted in this
// one.
func TestATakeIsDecidedWithAllItsWindowsFrozen(t *testing.T) {
	clock := storetest.StartManualClock()
	var atReading func()
	s, err := New(Options{Now: func() time.Time {
		now := clock.Now()
		if f := atReading; f != nil {
			atReading = nil
			f()
		}
		return now
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a, b := charge(1, 9), charge(2, 9)
	first := s.mustTake(t, a, b)

	frozen := -1
	atReading = func() {
		clock.Advance(time.Second)
		s.clock.now() // as another take does
		atReading = func() {
			frozen = 0
			for _, key := range [][]byte{a.Key, b.Key} {
				hash := s.seed.hash(key)
				if isBusy(s.table.find(hash).word.Load(), hash) {
					frozen++
				}
			}
		}
	}
	if r := s.mustTake(t, a, b); r.Now != first.Now+1 {
		t.Errorf("the take is of second %d; it was decided in %d", r.Now, first.Now+1)
	}
	if frozen != 2 {
		t.Errorf("%d of 2 windows were frozen when the take read the clock again (-1: it never did)", frozen)
	}
}
