package watch_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/watch"
)

// BenchmarkObserve measures one request; run it with -cpu 1,2. In a flood, each caller sends one
// request.
func BenchmarkObserve(b *testing.B) {
	for _, c := range []struct {
		name    string
		outcome answer.Outcome
		limit   int64
		flood   bool
	}{
		{"unlimited", answer.Unlimited, 0, false},
		{"admitted", answer.Admitted, 1 << 30, false},
		{"refused", answer.Refused, 1, false},
		{"flood", answer.Admitted, 1 << 30, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newRecorder(b, time.Now)
			var serial atomic.Uint64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				o := answer.Observation{Outcome: c.outcome}
				if c.limit > 0 {
					desk := newDesk(b, time.Now, weir.Limiter{Name: "ask", Windows: []weir.Window{window(b, c.limit, "minute", "ip")}})
					o = desk.event("ask", "192.0.2.1")
					o = desk.event("ask", "192.0.2.1")
				}
				start := serial.Add(1) << 40
				who := make([]byte, 24)
				for i := uint64(0); pb.Next(); i++ {
					if c.flood {
						binary.LittleEndian.PutUint64(who, start+i)
						o.Who = who
					}
					if i%1024 == 0 && o.Decision != nil {
						o.Decision.Now = time.Now().Unix()
					}
					r.Observe(o)
				}
			})
		})
	}
}

// BenchmarkQuietObserve measures one request below 2048 a second, where each of them is counted.
func BenchmarkQuietObserve(b *testing.B) {
	r := newRecorder(b, time.Now)
	desk := newDesk(b, time.Now, weir.Limiter{Name: "ask", Windows: []weir.Window{window(b, 1<<30, "minute", "ip")}})
	o := desk.event("ask", "192.0.2.1")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%1024 == 0 {
			o.Decision.Now++
		}
		r.Observe(o)
	}
}

// BenchmarkSnapshot measures a dashboard's request, for a few limiters and for the max, each with a
// full series and full lists of callers.
func BenchmarkSnapshot(b *testing.B) {
	for _, limiters := range []int{8, 1000} {
		c := newClock()
		r := newRecorder(b, c.now)
		before := heap()
		fill(b, c, r, limiters, 32)
		grown := heap() - before
		for name, ask := range map[string]watch.Query{"all": {}, "one": {Only: []string{"l1"}}, "series": {Top: -1, Seconds: 60}} {
			b.Run(fmt.Sprintf("limiters=%d/%s", limiters, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					r.Snapshot(ask)
				}
				b.ReportMetric(float64(grown)/float64(limiters), "B/limiter")
			})
		}
	}
}

// fill gives each limiter more callers than it keeps, some of them refused, over its whole series.
// The value of each key source has size bytes.
func fill(t testing.TB, c *clock, r *watch.Recorder, limiters, value int) {
	var p weir.Policy
	for i := range limiters {
		l := byIP(t, fmt.Sprint("l", i), 1)
		l.Windows[0].Per = 24 * time.Hour
		p.Limiters = append(p.Limiters, l)
	}
	r.Declare(p)
	desk := newDesk(t, c.now, p.Limiters...)
	for second := range 300 {
		c.move(time.Second)
		for i := range limiters {
			ip := fmt.Sprint(strings.Repeat("x", value-3), 100+second/2)
			r.Observe(desk.event(p.Limiters[i].Name, ip))
		}
	}
}
