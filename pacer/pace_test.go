package pacer_test

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/pacer"
)

// usable returns how many requests the default threshold admits in a window.
func usable(limit int64) int { return int(limit - pacer.Threshold(limit) + 1) }

func TestPacingAvoidsRefusalsAndUsesTheBudget(t *testing.T) {
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
				if bound := time.Duration(windows-1) * 10 * time.Second; took > bound+bound*3/100 {
					t.Errorf("%d windows took %v: want %v and 3 %% at most", windows, took, bound)
				}
			})
		})
	}
}

func TestProcessesThatShareAViewAreOneCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const windows = 10
		w := newWorld(t, policy("60 per 10 seconds by token or ip"), 0)
		var clients []http.RoundTripper
		shared := memory{states: make(map[string][]byte)}
		for range 8 {
			clients = append(clients, &timed{RoundTripper: pacer.New(&pacer.Options{Base: w, Shared: &shared})})
		}
		n := windows * usable(60)
		took := w.spend(n, 64, clients...)
		w.once(n)
		if w.refused != 0 {
			t.Errorf("%d refusals", w.refused)
		}
		if bound := time.Duration(windows-1) * 10 * time.Second; took > bound+bound*5/100 {
			t.Errorf("%d windows took %v: want %v and 5 %% at most", windows, took, bound)
		}
		for i, c := range clients { // 64 callers, 56 of which fit a window
			if longest := c.(*timed).longest; longest > 31*time.Second {
				t.Errorf("a call of process %d waited %v while others went", i, longest)
			}
		}
	})
}

// timed records its longest call.
type timed struct {
	http.RoundTripper
	mu      sync.Mutex
	longest time.Duration
}

func (c *timed) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	response, err := c.RoundTripper.RoundTrip(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.longest = max(c.longest, time.Since(began))
	return response, err
}

// If goroutines read the clock in one order and use it in another, it seems to go
// back.
func TestAClockThatJumpsALittleCausesNoRefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, policy("60 per 10 seconds by token or ip"), 0)
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(1, 1))
		now := func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(-time.Duration(random.IntN(5_000_000)))
		}
		n := 5 * usable(60)
		w.spend(n, 64, pacer.New(&pacer.Options{Base: w, Now: now}))
		w.once(n)
		if w.refused != 0 {
			t.Errorf("%d refusals", w.refused)
		}
	})
}

func TestUnsharedCallersAreRarelyRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const windows = 5
		w := newWorld(t, policy("600 per 10 seconds by token or ip"), 0)
		w.latency = 5 * time.Millisecond
		var clients []http.RoundTripper
		for range 8 {
			clients = append(clients, pacer.New(&pacer.Options{Base: w}))
		}
		const n = windows * 560
		took := w.spend(n, 64, clients...)
		w.once(n)
		if w.refused > n*2/100 {
			t.Errorf("%d of %d requests were refused, more than 2 %%", w.refused, n+w.refused)
		}
		if bound := (windows + 1) * 10 * time.Second; took > bound {
			t.Errorf("took %v, want %v at most", took, bound)
		}
		t.Logf("%d refused, %v", w.refused, took)
	})
}
