package redis_test

import (
	"slices"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// A node that is refused is admitted soon if another holds units of the window that it
// does not use: it claims them. Alone on a key of a week, that node would keep them
// for some seconds. Windows of which nothing was leased are not claimed.
func TestARefusedNodeGetsWhatAnotherHolds(t *testing.T) {
	for _, kind := range []struct {
		name  string
		start func(t *testing.T) (addresses []string, all []*redistest.Server)
	}{
		{"server", func(t *testing.T) ([]string, []*redistest.Server) {
			s := redistest.Start(t)
			return []string{s.Addr()}, []*redistest.Server{s}
		}},
		{"cluster", func(t *testing.T) ([]string, []*redistest.Server) {
			c := redistest.StartCluster(t, 3, 0)
			return c.Addrs(), c.Nodes
		}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			addresses, servers := kind.start(t)
			getsWhatAnotherHolds(t, addresses, servers, redisstore.LeasesAuto)
		})
		t.Run(kind.name+", without leases of its own", func(t *testing.T) {
			t.Parallel()
			addresses, servers := kind.start(t)
			getsWhatAnotherHolds(t, addresses, servers, redisstore.LeasesOff)
		})
	}
}

func getsWhatAnotherHolds(t *testing.T, addresses []string, servers []*redistest.Server, how redisstore.Leasing) {
	holder := open(t, redisstore.Options{Addresses: addresses, Leases: redisstore.LeasesAuto})
	other := open(t, redisstore.Options{Addresses: addresses, Leases: how})
	const limit, week = 60, 7 * 86400
	spent, unleased := charge("a", limit, week, 1), charge("b", 1, week, 1)
	take(t, holder, unleased)
	if take(t, other, unleased).Allowed {
		t.Error("a spent window admits one more")
	}
	for range limit / 4 {
		take(t, holder, spent)
	}
	admitted := int64(limit / 4)
	gate := spent // as before a body that tells the cost was read: its refusal claims too
	gate.Cost = weir.Gate
	admit := func() {
		for take(t, other, gate).Allowed && take(t, other, spent).Allowed {
			admitted++
		}
	}
	admit()
	held := limit - admitted
	if held == 0 {
		t.Fatalf("nothing was held: %+v", holder.Stats().Leases)
	}
	eventually(t, "what is held comes back", func() bool {
		admit()
		return admitted == limit
	})
	if r := take(t, holder, spent); r.Allowed {
		t.Errorf("%d of %d were admitted, and one more: %+v", admitted, limit, r)
	}
	if got := holder.Stats().Leases.Returned + holder.Stats().Leases.HeldBack; got < held {
		t.Errorf("%d units of %d went back", got, held)
	}
	var claimed []string
	for _, s := range servers { // on a cluster one of them has the key
		if names, err := s.Try("ZRANGE", "weir:claims", "0", "-1").AsStrSlice(); err == nil {
			claimed = append(claimed, names...)
		}
	}
	for _, w := range counters(t, servers...) {
		if w.count == 1 && slices.Contains(claimed, w.name) {
			t.Error("a window is claimed although nothing of it was leased")
		}
	}
	if n := other.Stats().Leases.Claimed; n == 0 {
		t.Error("nothing was claimed")
	}
}
