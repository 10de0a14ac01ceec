package redis_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// mixRate is the requests a second of BenchmarkMix, on all nodes together.
const mixRate = 1000

// A mix is a kind of policy whose requests leased units serve badly.
type mix struct {
	name    string
	charges func(i int, cost int64) []weir.Charge
	settles bool // each request, to half of what it has reserved
}

func mixes() []mix {
	everybody := func(limit, per, cost int64) weir.Charge { return charge("everybody", limit, per, cost) }
	return []mix{
		{"settled", func(_ int, cost int64) []weir.Charge { return []weir.Charge{everybody(1e9, 3600, cost)} }, true},
		{"by-caller", func(i int, cost int64) []weir.Charge {
			return []weir.Charge{charge(fmt.Sprint("caller ", i*7919%1000), 1e6, 3600, cost), everybody(1e9, 3600, cost)}
		}, false},
		{"exact", func(i int, cost int64) []weir.Charge {
			c := everybody(1e9, 3600, cost)
			c.Exact = i%2 == 0
			return []weir.Charge{c}
		}, false},
		{"short", func(_ int, cost int64) []weir.Charge { return []weir.Charge{everybody(1e9, 2, cost)} }, false},
		{"spent", func(_ int, cost int64) []weir.Charge {
			return []weir.Charge{everybody(mixRate*cost*3/2, 2, cost)}
		}, false},
	}
}

// BenchmarkMix begins 1,000 requests a second, some milliseconds from the server, without leases
// and with. It reports how many of 1,000 were not answered within 100 ms, how many were admitted,
// and of how many the settlement did not arrive. Leases may make none of it worse.
//
//	go test -run '^$' -bench Mix -benchtime 10000x ./e2e/redis
func BenchmarkMix(b *testing.B) {
	for _, m := range mixes() {
		for _, away := range []time.Duration{2, 5, 10, 20, 40} {
			for _, nodes := range []int{1, 3} {
				for _, cost := range []int64{1, 10} {
					for _, how := range leasings {
						name := fmt.Sprintf("%s/ms=%d/nodes=%d/cost=%d/leases=%s", m.name, away, nodes, cost, how.name)
						b.Run(name, func(b *testing.B) { m.run(b, away*time.Millisecond, nodes, cost, how.Leasing) })
					}
				}
			}
		}
	}
}

func (m *mix) run(b *testing.B, away time.Duration, nodes int, cost int64, how redisstore.Leasing) {
	proxy := redistest.NewProxy(b, redistest.Start(b).Addr())
	stores := make([]*redisstore.Store, nodes)
	for i := range stores {
		stores[i] = open(b, redisstore.Options{Addresses: []string{proxy.Addr()}, Leases: how})
		eventually(b, "the store is ready", func() bool { return stores[i].State().Ready })
	}
	proxy.Delay(away)
	var late, admitted, lost atomic.Int64
	b.ResetTimer()
	atRate(b.N, mixRate, func(i int) {
		ctx, cancel := context.WithTimeout(b.Context(), 100*time.Millisecond)
		defer cancel()
		var r weir.Receipt
		charges := m.charges(i, cost)
		if err := stores[i%nodes].Take(ctx, charges, &r); err != nil {
			late.Add(1)
			return
		}
		if !r.Allowed {
			return
		}
		admitted.Add(1)
		if !m.settles {
			return
		}
		changes := []weir.Change{{Charge: charges[0], Reset: r.Used[0].Reset, Units: -(cost + 1) / 2}}
		_ = stores[i%nodes].Settle(b.Context(), &r.Ticket, changes)
		if !changes[0].Done {
			lost.Add(1)
		}
	})
	b.StopTimer()
	share := 1000 / float64(b.N)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(late.Load())*share, "late/1000")
	b.ReportMetric(float64(admitted.Load())*share, "admitted/1000")
	b.ReportMetric(float64(lost.Load())*share, "lost/1000")
	leased := int64(0)
	for _, s := range stores {
		leased += s.Stats().Leases.Takes
	}
	b.ReportMetric(float64(leased)*share, "leased/1000")
}
