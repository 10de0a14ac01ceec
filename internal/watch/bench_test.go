package watch_test

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/watch"
)

// BenchmarkObserve is what a request pays; run it with -cpu 1,2. A flood is callers that come once each.
func BenchmarkObserve(b *testing.B) {
	for _, c := range []struct {
		name    string
		outcome string
		limit   int64
		flood   bool
	}{{"unlimited", "unlimited", 0, false}, {"admitted", "admitted", 1 << 30, false}, {"refused", "refused", 1, false}, {"flood", "admitted", 1 << 30, true}} {
		b.Run(c.name, func(b *testing.B) {
			r := newRecorder(b, time.Now)
			var serial atomic.Uint64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				o := watch.Event{Outcome: c.outcome}
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

// BenchmarkQuietObserve is a request of those that are all recorded: below 2048 a second.
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
