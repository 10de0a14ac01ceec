package identity

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParallelGuessesAreCountedExactly(t *testing.T) {
	var checks checkTable
	now, guesser := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), netip.MustParseAddr("203.0.113.7")
	checks.begin(now)
	var all sync.WaitGroup
	var checked atomic.Int64
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if checks.take(guesser, 0, now) {
					checked.Add(1)
				}
			}
		})
	}
	all.Wait()
	if checked.Load() != checkBurst {
		t.Errorf("%d of 8000 guesses were checked, want %d", checked.Load(), checkBurst)
	}
}

// Requests are judged in parallel, so a time may be a little older than one before it. In any order
// an address has a hundred checks, and one more for each ten milliseconds between the first time
// and the last (D16).
func TestNoOrderOfTimesGivesAnAddressMoreChecks(t *testing.T) {
	noon, guesser := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), netip.MustParseAddr("203.0.113.7")
	rapid.Check(t, func(t *rapid.T) {
		var checks checkTable
		checks.begin(noon)
		late := rapid.SampledFrom([]time.Duration{time.Microsecond, time.Millisecond, 50 * time.Millisecond, setBack}).Draw(t, "late")
		step := rapid.SampledFrom([]time.Duration{time.Microsecond, time.Millisecond, 30 * time.Millisecond}).Draw(t, "step")
		reserves := rapid.SampledFrom([][]int64{{0}, {checkReserve}, {checkReserve, 0}}).Draw(t, "reserves")
		latest, taken := time.Duration(0), 0
		for i, draw := range rapid.SliceOfN(rapid.Float64Range(0, 1), 300, 600).Draw(t, "draws") {
			latest += time.Duration(draw * float64(step))
			at := latest - time.Duration(rapid.Float64Range(0, 1).Draw(t, "age")*float64(late))
			if checks.take(guesser, reserves[i%len(reserves)], noon.Add(max(at, 0))) {
				taken++
			}
		}
		if most := checkBurst + int(latest/checkEvery) + 1; taken > most {
			t.Fatalf("%d checks in %v, want at most %d", taken, latest, most)
		}
	})
}

func TestParallelGuessesWithTimesInNoOrderAreBounded(t *testing.T) {
	var checks checkTable
	start, guesser := time.Now(), netip.MustParseAddr("203.0.113.7")
	checks.begin(start)
	var all sync.WaitGroup
	var clock, allowed atomic.Int64 // the clock is in microseconds
	for g := range 32 {
		all.Go(func() {
			for n := range 2000 {
				now := start.Add(time.Duration(clock.Add(1)) * time.Microsecond)
				for try := range 2 { // each token twice, the second by an older time
					if checks.allow(guesser, fmt.Sprint(g, " ", n), now.Add(-time.Duration(g*try)*time.Microsecond)) == nil {
						allowed.Add(1)
					}
				}
			}
		})
	}
	all.Wait()
	span := time.Duration(clock.Load()) * time.Microsecond
	if most := checkBurst + int64(span/checkEvery) + 1; allowed.Load() > most {
		t.Errorf("%d of %d guesses in %v were checked, want at most %d", allowed.Load(), 2*32*2000, span, most)
	}
}

// After a clock was set back, by whatever span, an address has its checks again two seconds later
// at the latest, and at once it has none: requests from before the step and after it can alternate.
func TestAClockThatWasSetBackGivesNoCheckAndTakesTwoSecondsAtMost(t *testing.T) {
	noon, guesser := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), netip.MustParseAddr("203.0.113.7")
	rapid.Check(t, func(t *rapid.T) {
		var checks checkTable
		checks.begin(noon)
		spend := func(at time.Time) (taken int) {
			for checks.take(guesser, 0, at) {
				taken++
			}
			return taken
		}
		if n := spend(noon); n != checkBurst {
			t.Fatalf("%d checks at first, want %d", n, checkBurst)
		}
		back := noon.Add(-time.Duration(rapid.Int64Range(1, int64(1000*time.Hour)).Draw(t, "back")))
		for range 10 {
			if n := spend(back); n != 0 {
				t.Fatalf("%d checks right after the step, want none", n)
			}
		}
		if n := spend(back.Add(2 * time.Second)); n != checkBurst {
			t.Fatalf("%d checks two seconds after the step, want %d", n, checkBurst)
		}
	})
}
