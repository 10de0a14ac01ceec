package redis_test

import (
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// A chain is a master, its replica, and a replica of that. The test does what a
// Sentinel would do, step by step; the Sentinel only tells who the master is.
type chain struct {
	t                     *testing.T
	master, first, second *redistest.Server
	between               *redistest.Proxy // the master and its replica
	sentinel              *redistest.Server
	store                 *redisstore.Store
}

const inChain = 100 // units that a chain counts with its replicas, and again without

// newChain counts inChain units that all machines have, and then as many that only
// the master has. Then the master ends.
func newChain(t *testing.T) *chain {
	t.Helper()
	c := &chain{t: t}
	c.master = redistest.Start(t, "--repl-diskless-sync-delay", "0")
	c.sentinel = redistest.StartSentinelOf(t, c.master)
	c.between = redistest.NewProxy(t, c.master.Addr())
	c.first = redistest.Start(t, "--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1", port(c.between.Addr()))
	c.second = redistest.Start(t, "--replicaof", "127.0.0.1", port(c.first.Addr()))
	c.store = open(t, redisstore.Options{Addresses: []string{c.sentinel.Addr()}, Master: redistest.MasterName, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	c.count(inChain)
	c.has(c.first, inChain)
	c.has(c.second, inChain)
	c.between.BlackHole()
	c.count(inChain)
	c.master.Kill()
	return c
}

func port(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// count takes units.
func (c *chain) count(units int) {
	for range units {
		take(c.t, c.store, charge("a", 1e6, 3600, 1))
	}
}

// has waits until a machine has counted units, and no more.
func (c *chain) has(s *redistest.Server, units int64) {
	c.t.Helper()
	eventually(c.t, "a machine has what was counted", func() bool {
		all := counters(c.t, s)
		return len(all) == 1 && all[0].count == units
	})
}

// promote ends the replication of a machine.
func (c *chain) promote(s *redistest.Server) {
	c.t.Helper()
	s.Do(c.t, "REPLICAOF", "NO", "ONE")
}

// announce makes the Sentinel name a machine as the master.
func (c *chain) announce(s *redistest.Server) {
	c.t.Helper()
	c.sentinel.Do(c.t, "SENTINEL", "REMOVE", redistest.MasterName)
	c.sentinel.Do(c.t, "SENTINEL", "MONITOR", redistest.MasterName, "127.0.0.1", port(s.Addr()), "1")
}

// What a promoted replica does not accept at once is given again for as long as its
// window lasts, not only for some seconds.
func TestWhatAPromotedReplicaRefusesIsGivenLater(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	c.promote(c.first)
	window := one(t, c.first).name
	c.first.Do(t, "RENAME", window, "aside")
	c.first.Do(t, "LPUSH", window, "no counter")
	c.announce(c.first)
	tried := func() int {
		n, _ := strconv.Atoi(strings.TrimPrefix(c.first.Info(t, "errorstats")["errorstat_WRONGTYPE"], "count="))
		return n
	}
	eventually(t, "what is missing was refused", func() bool { return tried() > 0 })
	refused, before := time.Now(), 0
	eventually(t, "it is still tried after some seconds", func() bool {
		if time.Since(refused) < 7*time.Second {
			before = tried()
			return false
		}
		return tried() > before
	})
	c.first.Do(t, "DEL", window)
	c.first.Do(t, "RENAME", "aside", window)
	eventually(t, "what is missing is counted again", func() bool { return c.store.Stats().CountedAgain > 0 })
	c.enough()
}

// If a replica was promoted by another that was promoted, and the store has not seen
// that one, all that was counted lately is counted again.
func TestAfterAPromotionThatWasNotSeenAllIsCountedAgain(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	c.promote(c.first)
	eventually(t, "its replica has its history", func() bool {
		info := c.second.Info(t, "replication")
		return info["master_replid"] == c.first.Info(t, "replication")["master_replid"] && info["master_link_status"] == "up"
	})
	c.promote(c.second)
	c.first.Kill()
	c.announce(c.second)
	c.enough()
}

// enough checks that a promoted machine has what was counted before, and at most all
// of it twice, when it admits something.
func (c *chain) enough() {
	c.t.Helper()
	var r weir.Receipt
	eventually(c.t, "the promoted machine counts", func() bool {
		return c.store.Take(c.t.Context(), []weir.Charge{charge("a", 1e6, 3600, 1)}, &r) == nil
	})
	if had := r.Used[0].Count - 1; had < 2*inChain || had > 4*inChain {
		c.t.Errorf("%d units were counted before, and the promoted machine has %d", 2*inChain, had)
	}
}
