package pace

import (
	"testing"
	"testing/synctest"
	"time"
)

// The bounds of a tunnel, in seconds. At each time in notes bytes pass; a half ends at half.
func TestATunnelEndsAtItsBounds(t *testing.T) {
	for name, test := range map[string]struct {
		idle  int
		notes []int
		half  int // 0: never
		ends  int // 0: never
	}{
		"whole and silent, without a bound":   {0, nil, 0, 0},
		"whole and silent":                    {60, nil, 0, 60},
		"whole, and bytes pass":               {60, []int{50, 100, 159}, 0, 219},
		"a half ends, and nothing follows":    {0, nil, 100, 130},
		"a half ends, and bytes follow":       {0, []int{120, 140}, 100, 170},
		"a half ends long after the last":     {3600, []int{5}, 1000, 1030},
		"a half ends, and the idle bound":     {10, nil, 5, 15},
		"a half ends, and bytes pass forever": {0, every(20, 2000), 100, 400},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, ended := time.Now(), make(chan time.Duration, 2)
				tunnel := &Tunnel{Idle: time.Duration(test.idle) * time.Second, Half: 30 * time.Second, Most: 300 * time.Second}
				tunnel.End = func() { ended <- time.Since(begun) }
				tunnel.Start()
				defer tunnel.Stop()
				at := func(second int, do func()) { time.AfterFunc(time.Duration(second)*time.Second, do) }
				for _, second := range test.notes {
					at(second, tunnel.Note)
				}
				if test.half > 0 {
					at(test.half, tunnel.HalfEnded)
					at(test.half+1, tunnel.HalfEnded) // the other half, or a second notice
				}
				time.Sleep(3000 * time.Second)
				synctest.Wait()
				var got time.Duration
				if len(ended) > 0 {
					got = <-ended
				}
				if want := time.Duration(test.ends) * time.Second; got != want || len(ended) > 0 {
					t.Errorf("ended after %v, want %v; %d times more", got, want, len(ended))
				}
			})
		})
	}
}

func every(seconds, until int) (all []int) {
	for s := seconds; s < until; s += seconds {
		all = append(all, s)
	}
	return all
}

func TestATunnelThatHasEndedIsNotEndedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tunnel := &Tunnel{Idle: time.Second, Half: time.Second, Most: time.Second, End: func() { t.Error("ended after Stop") }}
		tunnel.Start()
		tunnel.Stop()
		tunnel.HalfEnded()
		tunnel.Note()
		time.Sleep(time.Hour)
	})
}
