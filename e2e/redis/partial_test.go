package redis_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// partial starts a cluster that serves without a machine that has no replica, once that is taken
// for failed.
func partial(t *testing.T) *redistest.Cluster {
	t.Helper()
	return redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "3000")
}

// callers returns, for each master, a caller that it counts.
func callers(t *testing.T, cluster *redistest.Cluster, n *node) map[*redistest.Server]string {
	t.Helper()
	of := make(map[*redistest.Server]string)
	for i := 0; len(of) < len(cluster.Nodes); i++ {
		who := fmt.Sprint("user-", i)
		n.until(who, weir.Counted)
		for _, s := range cluster.Nodes {
			if of[s] == "" && len(counters(t, s)) > 0 {
				of[s] = who
			}
		}
	}
	return of
}

// without kills a master that has none of the keys, and returns the live masters.
func without(t *testing.T, cluster *redistest.Cluster, keys ...string) (alive []*redistest.Server) {
	t.Helper()
	var needed []*redistest.Server
	for _, key := range keys {
		needed = append(needed, cluster.MasterOf(t, key))
	}
	i := slices.IndexFunc(cluster.Nodes, func(s *redistest.Server) bool { return !slices.Contains(needed, s) })
	if i < 0 {
		t.Fatalf("%v are on all machines", keys)
	}
	dead := cluster.Nodes[i]
	dead.Kill()
	alive = slices.DeleteFunc(slices.Clone(cluster.Nodes), func(s *redistest.Server) bool { return s == dead })
	for _, s := range alive {
		eventually(t, "it knows", func() bool {
			text, err := s.Try("CLUSTER", "NODES").ToString()
			return err == nil && strings.Contains(text, "master,fail ")
		})
	}
	return alive
}

// One machine is dead, and another does not answer for a moment. The second soon
// gets its units, and its callers are counted in common while the first is still
// dead.
func TestADeadMachineAffectsOnlyItsCallers(t *testing.T) {
	t.Parallel()
	cluster := partial(t)
	var nodes []*node
	for range 2 {
		nodes = append(nodes, newNode(t, open(t, redisstore.Options{Addresses: cluster.Addrs()}), deadline, hourly(1e6)))
	}
	of := callers(t, cluster, nodes[0])
	dead, b := cluster.Nodes[2], cluster.Nodes[1]
	dead.Kill()
	for _, n := range nodes {
		n.until(of[b], weir.Counted)
		for range 3 {
			n.until(of[dead], weir.CountedLocally) // so that there are units to give to it
		}
	}
	b.Pause(t)
	for _, n := range nodes {
		n.until(of[b], weir.CountedLocally)
	}
	b.Resume(t)
	for _, n := range nodes {
		eventually(t, "the living are counted in common", func() bool {
			n.over.Probe(context.Background())
			return n.decide(of[b]).Outcome == weir.Counted && n.decide(of[cluster.Nodes[0]]).Outcome == weir.Counted
		})
		eventually(t, "they stay so while the dead one's callers ask", func() bool {
			for range 100 {
				if d := n.decide(of[dead]); d.Outcome != weir.CountedLocally {
					t.Errorf("a caller of the dead machine has outcome %d", d.Outcome)
				}
				for _, s := range cluster.Nodes[:2] {
					if n.decide(of[s]).Outcome != weir.Counted || n.over.Health().BreakerOpen {
						return false // a busy machine answers late
					}
				}
			}
			return true
		})
	}
	dead.Restart(t)
	for _, n := range nodes {
		eventually(t, "all are counted in common", func() bool {
			n.over.Probe(context.Background())
			return n.decide(of[dead]).Outcome == weir.Counted
		})
	}
}

// If a node starts while a machine is dead, it counts in common on the live
// machines.
func TestANodeStartsWhileAMachineIsDead(t *testing.T) {
	t.Parallel()
	cluster := partial(t)
	of := callers(t, cluster, newNode(t, open(t, redisstore.Options{Addresses: cluster.Addrs()}), deadline, hourly(1e6)))
	alive := without(t, cluster, "weir:secret", "weir:{trial}1")
	o := redisstore.Options{}
	for _, s := range alive {
		o.Addresses = append(o.Addresses, s.Addr())
	}
	n := newNode(t, open(t, o), deadline, hourly(1e6))
	for _, s := range alive {
		n.until(of[s], weir.Counted)
	}
}

// While a machine is dead that does not hold them, grants are known everywhere.
func TestGrantsAreKnownWhileAMachineIsDead(t *testing.T) {
	t.Parallel()
	cluster := partial(t)
	o := redisstore.Options{Addresses: cluster.Addrs()}
	a, b := open(t, o), open(t, o)
	grant(t, a, "x", 50)
	eventually(t, "it is known", func() bool { return granted(b, "x") == 50 })
	without(t, cluster, "weir:grants")
	eventually(t, "it is granted", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c := charge("x", 10, 3600, 1)
		return a.Grant(ctx, []weir.Charge{c}, []weir.Grant{{Limit: 70, Until: time.Now().Unix() + 3600}}) == nil
	})
	eventually(t, "it is known", func() bool { return granted(b, "x") == 70 })
}
