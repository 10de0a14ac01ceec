package pace

import (
	"testing"
	"time"
)

// The allowance of a slow client: waiting reduces it, and bytes increase it, up to
// the grace.
func TestAnAllowanceIsEarnedByBytes(t *testing.T) {
	l := Limits{Stall: 30 * time.Second, Take: time.Minute, Rate: 500, Grace: 20 * time.Second}
	for name, test := range map[string]struct {
		wait  time.Duration // for each piece
		piece int
		ends  time.Duration // 0 if it never ends
	}{
		"nothing comes":                  {time.Second, 0, 20 * time.Second},
		"a byte every five seconds":      {5 * time.Second, 1, 25 * time.Second},
		"just below the rate":            {10 * time.Second, 4000, 100 * time.Second},
		"at the rate":                    {10 * time.Second, 5000, 0},
		"large pieces with long pauses":  {15 * time.Second, 20000, 0},
		"above the rate, with no pauses": {time.Second, 600, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var a Allowance
			a.Begin(&l)
			var waited time.Duration
			for ok := true; ok && waited < 30*time.Minute; {
				if next := a.Next(&l); next > l.Grace || next <= 0 {
					t.Fatalf("%s: the next wait may last %v after %v", name, next, waited)
				}
				waited += test.wait
				ok = a.Spend(&l, test.wait, test.piece)
			}
			if test.ends == 0 && waited < 30*time.Minute || test.ends != 0 && (waited < test.ends-test.wait || waited > test.ends+test.wait) {
				t.Errorf("%s: it ends after %v, want %v", name, waited, test.ends)
			}
		})
	}
	var a Allowance
	a.Begin(&l)
	a.Spend(&l, 0, 1<<30) // fast data does not increase the allowance beyond the grace
	if next := a.Next(&l); next > 20*time.Second {
		t.Errorf("after a gigabyte the next wait may last %v", next)
	}
	l.Upload = time.Hour
	for waited := time.Duration(0); waited < time.Hour-time.Second; waited += time.Second {
		if !a.Spend(&l, time.Second, 1000) {
			t.Fatalf("an upload at twice the rate ends after %v", waited)
		}
	}
	if a.Spend(&l, time.Second, 1000) {
		t.Error("an upload goes on after its whole time")
	}
}
