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
	if trend.Wish(now, per, 1000, 10) == (lease.Wish{}) {
		t.Fatal("nothing is wished for")
	}
	trend.Refused(100, reset)
	if w := trend.Wish(now, per, 100, 10); w != (lease.Wish{}) {
		t.Errorf("of a limit that is spent %+v is wished for", w)
	}
	if trend.Wish(now, per, 1000, 10) == (lease.Wish{}) {
		t.Error("of another limit nothing is wished for")
	}
	trend.Refused(999, reset)
	if w := trend.Wish(now, per, 1000, 10); w != (lease.Wish{}) {
		t.Errorf("with one unit left %+v is wished for", w)
	}
	if trend.Wish(now, per, 1000, reset) == (lease.Wish{}) {
		t.Error("the refusal outlives its window")
	}
}
