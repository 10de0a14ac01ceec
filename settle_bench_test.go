package weir_test

import (
	"context"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// BenchmarkSettled is a request of a limiter that settles nothing, and of limiters that do.
func BenchmarkSettled(b *testing.B) {
	l := limiter("l", "1000000000 per hour by ip")
	for _, test := range []struct {
		name    string
		limiter weir.Limiter
		status  int
		units   int64
	}{
		{"nothing", l, 0, -1},
		{"status-counted", onlyFailures(l), 401, -1},
		{"status-given-back", onlyFailures(l), 200, -1},
		{"cost", priced("l", 9, "1000000000 per hour by ip"), 0, 3},
		{"slot", inFlight(l, 1), 0, -1},
	} {
		b.Run(test.name, func(b *testing.B) {
			store, err := memstore.New(memstore.Options{})
			if err != nil {
				b.Fatal(err)
			}
			d, err := weir.New(policyOf(test.limiter), store, weir.Options{})
			if err != nil {
				b.Fatal(err)
			}
			var s weir.Scratch
			var out weir.Decision
			ctx, r := context.Background(), weir.Request{Limiters: []string{"l"}, Keys: me, Scratch: &s}
			b.ReportAllocs()
			for b.Loop() {
				if err := d.DecideInto(ctx, &r, &out); err != nil || !out.Allowed {
					b.Fatalf("%+v, %v", out, err)
				}
				if s.Awaits() == 0 {
					continue
				}
				d.Answered(ctx, &s, test.status, &out)
				d.Spent(ctx, &s, test.units, &out)
				d.End(ctx, &s)
			}
		})
	}
}
