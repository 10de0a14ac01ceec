package handover

import (
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// BenchmarkTake takes from the counts of this process, and from the store in them without a way to
// hand them over: what that costs.
func BenchmarkTake(b *testing.B) {
	counts := New(memstore.Options{})
	if err := counts.Open(nil); err != nil {
		b.Fatal(err)
	}
	defer counts.Close()
	for _, test := range []struct {
		name  string
		store weir.Store
	}{{"counts", counts}, {"store", counts.place.Load().local}} {
		b.Run(test.name, func(b *testing.B) {
			charges := []weir.Charge{{Key: []byte("minute"), Scope: 6, Subject: 6, Limit: 1 << 30, Per: 86400, Cost: 1}}
			var r weir.Receipt
			b.ReportAllocs()
			for b.Loop() {
				if err := test.store.Take(b.Context(), charges, &r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
