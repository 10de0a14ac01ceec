package redis_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// BenchmarkSettledTakes begins 5,000 takes a second of one window on one node, 1 ms from the
// server, and settles each by -1. It reports how many takes failed, how many settlements did not
// arrive, and how long a settlement took, at the median and at the 99th percentile.
func BenchmarkSettledTakes(b *testing.B) {
	for _, how := range leasings {
		b.Run(how.name, func(b *testing.B) {
			proxy := redistest.NewProxy(b, redistest.Start(b).Addr())
			proxy.Delay(time.Millisecond)
			settleAtRate(b, open(b, redisstore.Options{Addresses: []string{proxy.Addr()}, Leases: how.Leasing}), 5000)
		})
	}
}

// leasings are what the benchmarks compare.
var leasings = []struct {
	name string
	redisstore.Leasing
}{{"off", redisstore.LeasesOff}, {"auto", redisstore.LeasesAuto}}

// atRate begins n requests at a steady rate, whatever becomes of them, and waits for all.
func atRate(n, perSecond int, request func(i int)) {
	var all sync.WaitGroup
	begun := time.Now()
	for i := range n {
		if wait := time.Until(begun.Add(time.Duration(i) * time.Second / time.Duration(perSecond))); wait > 0 {
			<-time.After(wait)
		}
		all.Go(func() { request(i) })
	}
	all.Wait()
}

func settleAtRate(b *testing.B, s *redisstore.Store, perSecond int) {
	c := charge("a", 1e9, 3600, 3)
	var mu sync.Mutex
	var failed, lost int
	var took []time.Duration
	atRate(b.N, perSecond, func(int) {
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		var r weir.Receipt
		err := s.Take(ctx, []weir.Charge{c}, &r)
		start := time.Now()
		changes := []weir.Change{{Charge: c, Reset: r.Used[0].Reset, Units: -1}}
		if err == nil {
			_ = s.Settle(ctx, &r.Ticket, changes)
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(start))
		switch {
		case err != nil:
			failed++
		case !changes[0].Done:
			lost++
		}
	})
	slices.Sort(took)
	b.ReportMetric(float64(failed), "failed")
	b.ReportMetric(float64(lost), "lost")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-settle-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-settle-p99")
	if a := s.Stats(); a.Leases.Takes > 0 {
		b.Logf("%d of %d takes were served from leased units", a.Leases.Takes, b.N)
	}
}

// BenchmarkLeasedTake is a take that leased units serve, on one core.
func BenchmarkLeasedTake(b *testing.B) {
	s := open(b, redisstore.Options{Addresses: []string{redistest.Start(b).Addr()}, Leases: redisstore.LeasesAuto})
	charges := []weir.Charge{charge("a", 2e9, 3600, 1)}
	var r weir.Receipt
	for b.Loop() {
		if err := s.Take(b.Context(), charges, &r); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(100*float64(s.Stats().Leases.Takes)/float64(b.N), "%-leased")
}

// BenchmarkTakeForReplicas is a take on a master that has a replica, by 64 callers: one that waits
// for nothing, and one that waits until the replica has what was spent.
func BenchmarkTakeForReplicas(b *testing.B) {
	for _, replicas := range []int{0, 1} {
		b.Run(fmt.Sprint(replicas), func(b *testing.B) {
			master := redistest.Start(b, "--repl-diskless-sync-delay", "0")
			replica := redistest.Start(b, "--replicaof", "127.0.0.1", port(master.Addr()))
			followedAtOnce(b, redisstore.Options{Addresses: []string{master.Addr()}, Replicas: 1})
			s := open(b, redisstore.Options{Addresses: []string{master.Addr()}, Replicas: replicas})
			before := master.CPU(b) + replica.CPU(b)
			b.ResetTimer()
			b.SetParallelism(64 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				var r weir.Receipt
				charges := []weir.Charge{charge("a", 2e9, 3600, 1)}
				for pb.Next() {
					if err := s.Take(b.Context(), charges, &r); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64((master.CPU(b)+replica.CPU(b)-before).Nanoseconds())/float64(b.N), "ns-servers/op")
		})
	}
}
