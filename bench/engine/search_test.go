package main

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"
)

// A server that keeps every rate up to its capacity is found to keep that, from wherever the search
// begins, and never more.
func TestTheHighestRateIsFound(t *testing.T) {
	for _, capacity := range []float64{120, 7_900, 8_000, 8_001, 50_000, 71_506, 1_000_000} {
		for _, from := range []struct{ first, step float64 }{{firstRate, firstStep}, {capacity, laterStep}, {capacity / 3, laterStep}, {3 * capacity, laterStep}} {
			tried := 0
			got, err := highestRate(from.first, from.step, func(rate float64) (verdict, error) {
				tried++
				if rate > capacity {
					return missed, nil
				}
				return kept, nil
			})
			if err != nil || got > capacity || got < capacity/rateStep || tried > 60 {
				t.Errorf("from %v by %v: a server keeps %v, found %v after %d trials, %v", from.first, from.step, capacity, got, tried, err)
			}
		}
	}
}

// A rate is missed if it is missed twice, and void trials do not count, unless there are no others.
func TestARateIsTriedAgain(t *testing.T) {
	for _, c := range []struct {
		trials []verdict
		want   verdict
	}{
		{[]verdict{kept}, kept},
		{[]verdict{missed, kept}, kept},
		{[]verdict{missed, missed}, missed},
		{[]verdict{void, kept}, kept},
		{[]verdict{void, missed, void, kept}, kept},
		{[]verdict{void, missed, void, missed}, missed},
		{[]verdict{void, void, missed, void, void}, missed},
		{[]verdict{void, void, void, void, kept}, kept},
		{[]verdict{void, void, void, void, void}, void},
	} {
		n := 0
		got, err := tryAgain(7, func(rate float64) (verdict, error) {
			n++
			return c.trials[n-1], nil
		})
		if got != c.want || err != nil || n != len(c.trials) {
			t.Errorf("%v: %v after %d trials, %v, want %v after all", c.trials, got, n, err, c.want)
		}
	}
}

// There is no figure if the load is the limit, if every rate is kept, or if none is.
func TestThereIsNoFigureWithoutALimit(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		what string
		try  func(rate float64) (verdict, error)
		want error
	}{
		{"the load is late", func(rate float64) (verdict, error) {
			if rate > 20_000 {
				return void, nil
			}
			return kept, nil
		}, errVoid},
		{"everything is kept", func(float64) (verdict, error) { return kept, nil }, nil},
		{"nothing is kept", func(float64) (verdict, error) { return missed, nil }, nil},
		{"a trial fails", func(float64) (verdict, error) { return kept, broken }, broken},
	} {
		rate, err := highestRate(firstRate, firstStep, c.try)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v", c.what, rate, err)
		}
	}
}

func TestTheVerdictOfATrial(t *testing.T) {
	times := func(fast, slow int) []time.Duration {
		return slices.Concat(slices.Repeat([]time.Duration{time.Millisecond}, fast), slices.Repeat([]time.Duration{keptP99}, slow))
	}
	late := punctuality{events: 1000, late: 11}
	for _, c := range []struct {
		what string
		of   trial
		want verdict
	}{
		{"all fast", trial{took: times(1000, 0)}, kept},
		{"one of a hundred slow", trial{took: times(990, 10)}, missed},
		{"fewer", trial{took: times(991, 9)}, kept},
		{"no answer", trial{}, missed},
		{"stopped early", trial{took: times(1000, 0), stopped: true}, missed},
		{"slow, by a load that was late", trial{took: times(900, 100), delays: late}, void},
		{"slow, by a load without time left", trial{took: times(900, 100), busy: 0.96}, void},
		{"slow, by a load that was punctual enough", trial{took: times(900, 100), delays: punctuality{events: 1000, late: 10}, busy: 0.95}, missed},
		{"fast, though the load was late", trial{took: times(1000, 0), delays: late, busy: 1}, kept},
	} {
		if got := c.of.verdict(); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

func TestTheP99OfATrial(t *testing.T) {
	var of trial
	if got := of.p99(); got != math.MaxInt64 {
		t.Errorf("of nothing: %v", got)
	}
	for i := range 200 {
		of.took = append(of.took, time.Duration(200-i)) // 200 to 1
	}
	if got := of.p99(); got != 199 {
		t.Errorf("of 1 to 200: %v, want 199: 198 are less", got)
	}
}

func TestLatenessIsCounted(t *testing.T) {
	var p punctuality
	if got := p.share(); got != 0 {
		t.Errorf("without events: %v", got)
	}
	for _, after := range []time.Duration{0, lateAfter, lateAfter + 1, time.Second} {
		p.note(after)
	}
	if got := p.share(); got != 0.5 {
		t.Errorf("%v of four events were late, want half", got)
	}
}

// Requests are due at even intervals that do not add up errors.
func TestWhenRequestsAreDue(t *testing.T) {
	for _, c := range []struct {
		number int
		rate   float64
		want   time.Duration
	}{{0, 3, 0}, {1, 1000, time.Millisecond}, {3_000_000, 3, 1_000_000 * time.Second}, {70_000 * 60, 70_000, time.Minute}} {
		if got := dueAt(c.number, c.rate); got != c.want {
			t.Errorf("request %d at %v a second is due at %v, want %v", c.number, c.rate, got, c.want)
		}
	}
}

func TestCasesAreChosen(t *testing.T) {
	for _, c := range []struct {
		list string
		want []string
	}{
		{"tls", []string{tlsCase}},
		{"http2-idle,rate-t*,http2-idle", []string{http2Idle, rateTLS, rateTLS + silentSuffix}},
		{"upload,download", []string{uploadCase, downloadCase}},
		{"uploads", nil},
		{"", nil},
		{"[", nil},
	} {
		chosen, err := chooseCases(c.list)
		var names []string
		for _, one := range chosen {
			names = append(names, one.name)
		}
		if !slices.Equal(names, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%q: %q, %v, want %q", c.list, names, err, c.want)
		}
	}
}
