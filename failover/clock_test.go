package failover_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// Until a shared store has answered, its clock is this process's; the first answer
// can move it by minutes. A window with pending units ends as much later as its
// caller was promised, whether the clock moves forward or back.
func TestAClockStepMovesNoPendingWindow(t *testing.T) {
	for _, test := range []struct {
		name  string
		wait  time.Duration // from the first request, of a minute's window, until the clock is set
		ahead time.Duration
		again bool          // whether a request follows before the store answers
		units int64         // given to the store,
		left  time.Duration // in a window that ends so much later
	}{
		{"forward", 20 * time.Second, 5 * time.Minute, false, 20, 40 * time.Second},
		{"back", 20 * time.Second, -5 * time.Minute, false, 20, 40 * time.Second},
		// The promised reset holds.
		{"hardly", 20 * time.Second, 1500 * time.Millisecond, false, 20, 38500 * time.Millisecond},
		{"back, after its end", 61 * time.Second, -5 * time.Minute, false, 0, 0},
		{"forward, after its end", 61 * time.Second, 5 * time.Minute, false, 0, 0},
		// The caller was promised the new window's end.
		{"forward, and on", 20 * time.Second, 5 * time.Minute, true, 21, time.Minute},
		{"back, and on", 20 * time.Second, -5 * time.Minute, true, 21, 40 * time.Second},
		{"not, and on", 20 * time.Second, 0, true, 21, 40 * time.Second},
		{"not, and on after its end", time.Minute, 0, true, 1, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newCommon(t)
				n := newNode(t, store, limiter("l", "100 per minute by ip"))
				store.mode.Store(fails)
				n.open(ip)
				<-time.After(test.wait)
				store.ahead.Store(int64(test.ahead))
				if test.again {
					n.ask("l", 0, ip)
					<-time.After(time.Second)
					test.left -= time.Second
				}
				store.mode.Store(answers)
				n.over.Probe(t.Context())
				synctest.Wait()
				if got := store.units(); got != test.units {
					t.Fatalf("the store was given %d units, want %d", got, test.units)
				}
				for _, s := range store.given {
					if left := time.Unix(s.Used.Reset, 0).Sub(time.Now().Add(test.ahead)); left != test.left {
						t.Errorf("in a window that ends in %v, want %v", left, test.left)
					}
				}
			})
		})
	}
}

// A window by the clock ends at an instant of the store's clock, wherever that is set: if it ended
// earlier at the store, its caller would have a second budget in that span.
func TestAClockStepDoesNotMoveTheEndOfACalendarsWindow(t *testing.T) {
	for _, ahead := range []time.Duration{-5 * time.Minute, 0, 5 * time.Minute, 23 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			<-time.After(10 * time.Minute) // past midnight in UTC
			store := newCommon(t)
			n := newNode(t, store, limiter("l", "100 per calendar day by ip"))
			store.mode.Store(fails)
			n.open(ip)
			<-time.After(20 * time.Second)
			store.ahead.Store(int64(ahead))
			store.mode.Store(answers)
			n.over.Probe(t.Context())
			synctest.Wait()
			if len(store.given) == 0 {
				t.Fatalf("%v ahead: the store was given nothing", ahead)
			}
			now := time.Now()
			end := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, time.UTC).Unix()
			for _, s := range store.given {
				if s.Used.Reset != end || s.Ends == nil {
					t.Errorf("%v ahead: in a window that ends at %d, want %d", ahead, s.Used.Reset, end)
				}
			}
		})
	}
}
