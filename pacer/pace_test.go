package pacer_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/pacer"
)

// usable is how many requests the default threshold lets through in a window.
func usable(limit int64) int { return int(limit - pacer.Threshold(limit) + 1) }

func TestNobodyIsRefusedAndLittleIsLeft(t *testing.T) {
	for name, ahead := range map[string]time.Duration{
		"clocks agree": 0, "local clock 10 minutes slow": 10 * time.Minute, "local clock 10 minutes fast": -10 * time.Minute,
		"local clock off by less than a second": 700 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const windows = 10
				w := newWorld(t, policy("60 per 10 seconds by token or ip"), ahead)
				n := windows * usable(60)
				took := w.spend(n, 64, pacer.New(&pacer.Options{Base: w}))
				w.once(n)
				if w.refused != 0 {
					t.Errorf("%d refusals", w.refused)
				}
				if most := time.Duration(windows-1) * 10 * time.Second; took > most+most*3/100 {
					t.Errorf("%d windows took %v: want %v and 3 %% at most", windows, took, most)
				}
			})
		})
	}
}
