package lease_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/lease"
)

// A refusal under one limit tells how much is left under another.
func TestARefusalLeavesAHigherLimit(t *testing.T) {
	const per, reset = time.Minute, 60
	var trend lease.Trend
	for n := range int64(100) {
		trend.Note(time.Duration(n)*time.Second/10, per, 1, n, n+1, reset)
	}
	now := 10 * time.Second
	if trend.Wish(now, per, 1000, 10, 0) == (lease.Wish{}) {
		t.Fatal("nothing is wished for")
	}
	trend.Refused(100, reset)
	if w := trend.Wish(now, per, 100, 10, 0); w != (lease.Wish{}) {
		t.Errorf("of a limit that is spent %+v is wished for", w)
	}
	if trend.Wish(now, per, 1000, 10, 0) == (lease.Wish{}) {
		t.Error("of another limit nothing is wished for")
	}
	trend.Refused(999, reset)
	if w := trend.Wish(now, per, 1000, 10, 0); w != (lease.Wish{}) {
		t.Errorf("with one unit left %+v is wished for", w)
	}
	if trend.Wish(now, per, 1000, reset, 0) == (lease.Wish{}) {
		t.Error("the refusal outlives its window")
	}
}

// What a node holds is lost with its connection, so it is what the node spends in seconds, also of
// a window of a day.
func TestLittleIsLeasedOfALongWindow(t *testing.T) {
	const per, reset, limit = 24 * time.Hour, 1e6, 1e6
	for _, others := range []int64{0, 3} {
		var trend lease.Trend
		for n := range int64(3000) { // ten a second for five minutes
			count := (others + 1) * n
			trend.Note(time.Duration(n)*time.Second/10, per, 1, count, count+1, reset)
		}
		most := int64(300)
		if others > 0 {
			most = 100
		}
		if w := trend.Wish(5*time.Minute, per, limit, 0, 0); w.Units < most/2 || w.Units > most {
			t.Errorf("with %d times as many of other nodes, %d units are wished for, want at most %d", others, w.Units, most)
		}
	}
}

// While more requests wait than would be granted, all are asked for one by one.
func TestNothingIsLeasedForACrowd(t *testing.T) {
	const per, reset, limit = time.Minute, 60, 1e6
	var trend lease.Trend
	for n := range int64(100) {
		trend.Note(time.Duration(n)*time.Millisecond, per, 1, n, n+1, reset)
	}
	now := 100 * time.Millisecond
	units := trend.Wish(now, per, limit, 10, 0).Units
	if units < 4 {
		t.Fatalf("%d units are wished for", units)
	}
	if w := trend.Wish(now, per, limit, 10, units/2); w.Units != units {
		t.Errorf("while %d wait, %+v is wished for, want %d", units/2, w, units)
	}
	if w := trend.Wish(now, per, limit, 10, units/2+1); w != (lease.Wish{}) {
		t.Errorf("while %d wait, %+v is wished for", units/2+1, w)
	}
	if w := trend.Wish(now, per, 110, 10, 5); w != (lease.Wish{}) {
		t.Errorf("with 10 left, and 5 that wait, %+v is wished for", w)
	}
}

// Requests that leased units cannot serve keep a window from being leased if they are many, or if
// they are at the store for much of the time.
func TestOtherRequestsKeepUnitsFromBeingLeased(t *testing.T) {
	const per, reset = time.Minute, 60
	for _, c := range []struct {
		other  int           // of 100 units in each tenth of a second
		lasted time.Duration // at the store
		want   bool
	}{
		{0, 0, true},
		{1, 5 * time.Millisecond, true},
		{10, 5 * time.Millisecond, false},
		{1, 50 * time.Millisecond, false},
	} {
		var trend lease.Trend
		now := time.Duration(0)
		for n := range int64(50) {
			now += 100 * time.Millisecond
			for range c.other {
				trend.Other(1, now, c.lasted)
			}
			trend.Note(now, per, 100, 100*n, 100*n+1, reset)
		}
		if got := trend.Suits(now); got != c.want {
			t.Errorf("%d of 100 that last %v: units are leased: %v, want %v", c.other, c.lasted, got, c.want)
		}
		for range 100 { // only such as leased units can serve
			now += 100 * time.Millisecond
			trend.Note(now, per, 100, 0, 100, reset)
		}
		if !trend.Suits(now) {
			t.Errorf("10 s after %d of 100 that last %v no units are leased", c.other, c.lasted)
		}
	}
}

// However often a node was answered since, it is not alone in a window that others have spent or
// leased a part of. In the next window it can be.
func TestANodeIsNotAloneWhereOthersHaveSpent(t *testing.T) {
	var alone, after, between lease.Trend
	note := func(t *lease.Trend, at int, before, reset int64) {
		t.Note(time.Duration(at)*time.Second, time.Hour, 1, before, before+1, reset)
	}
	for i := range 200 {
		others := int64(0)
		if i >= 100 {
			others = 40 // between two answers, long ago by the end
		}
		note(&alone, i, int64(i), 3600)
		note(&after, i, int64(i)+40, 3600)
		note(&between, i, int64(i)+others, 3600)
	}
	if !alone.Alone(3600, 200) || alone.Alone(3600, 201) || alone.Alone(7200, 0) {
		t.Error("a node that has spent all is not alone, or is where the store counts more")
	}
	if after.Alone(3600, 240) || between.Alone(3600, 240) {
		t.Error("a node is alone in a window that others have spent 40 of")
	}
	alone.GaveBack(7200) // of another window
	if !alone.Alone(3600, 200) {
		t.Error("a node is not alone because units of another window went back")
	}
	if alone.GaveBack(3600); alone.Alone(3600, 200) {
		t.Error("a node is alone where units went back, which others may have spent")
	}
	note(&after, 300, 0, 7200)
	if !after.Alone(7200, 1) {
		t.Error("a node that has the next window for itself is not alone there")
	}
}
