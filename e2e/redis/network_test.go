package redis_test

import (
	"cmp"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// A storm is nodes that count in common, on a network with faults that a seed chooses. No limit is
// ever reached, so what the masters have counted at the end shows how many units they lack.
type storm struct {
	t       *testing.T
	random  *rand.Rand
	network *redistest.Network
	nodes   []*node
	hosts   []string // of the nodes

	sentinel *redistest.Sentinel // nil if it is a cluster
	cluster  *redistest.Cluster
}

// A fault begins, and returns what ends it.
type fault struct {
	name  string
	begin func() (end func())
}

// newStorm starts the machines and three nodes. cluster is whether they are one.
func newStorm(t *testing.T, seed uint64, cluster bool, o redisstore.Options) *storm {
	t.Helper()
	s := &storm{t: t, random: rand.New(rand.NewPCG(seed, 0)), network: new(redistest.Network)}
	if cluster {
		s.cluster = redistest.StartClusterIn(t, s.network, 3, 1)
		o.Addresses = s.cluster.Addrs()
	} else {
		s.sentinel = redistest.StartSentinelIn(t, s.network)
		o.Addresses, o.Master = s.sentinel.Addrs(), redistest.MasterName
	}
	for i := range 3 {
		host := s.network.NewHost()
		o.Dial = s.network.Dial(host)
		o.Log = slog.New(slog.NewTextHandler(t.Output(), nil)).With("node", i)
		n := newNode(t, open(t, o), 200*time.Millisecond, hourly(1e9))
		s.nodes, s.hosts = append(s.nodes, n), append(s.hosts, host)
		n.keepProbing() // while leased units serve all requests, none asks
		for _, caller := range s.callers() {
			n.until(caller, weir.Counted)
		}
	}
	return s
}

// callers are several on a cluster, so that each master counts some.
func (s *storm) callers() []string {
	if s.cluster == nil {
		return []string{"a"}
	}
	return []string{"a", "b", "c", "d", "e", "f", "g", "h"}
}

func (s *storm) machines() []*redistest.Server {
	if s.cluster != nil {
		return s.cluster.Nodes
	}
	return s.sentinel.Nodes
}

// master waits until all machines agree on the masters, and returns one of them.
func (s *storm) master() *redistest.Server {
	if s.cluster != nil {
		return s.cluster.MasterAt(s.t, s.random.IntN(redistest.Slots))
	}
	return s.sentinel.Master(s.t)
}

// watchers are the Sentinels, or the other machines of the cluster, which decide about a master.
func (s *storm) watchers(master *redistest.Server) []*redistest.Server {
	if s.cluster != nil {
		return s.others(master)
	}
	return s.sentinel.Sentinels
}

// others returns the machines other than one.
func (s *storm) others(than *redistest.Server) []*redistest.Server {
	return slices.DeleteFunc(slices.Clone(s.machines()), func(m *redistest.Server) bool { return m == than })
}

func hosts(all []*redistest.Server) (hosts []string) {
	for _, server := range all {
		hosts = append(hosts, server.Host())
	}
	return hosts
}

func pick[T any](s *storm, all []T) T { return all[s.random.IntN(len(all))] }

// cuts returns how the network can fail.
func (s *storm) cuts(master *redistest.Server) []fault {
	at, machines, watchers := []string{master.Host()}, hosts(s.machines()), hosts(s.watchers(master))
	everyone := slices.Concat(machines, s.hosts)
	if s.sentinel != nil {
		everyone = append(everyone, watchers...)
	}
	but := slices.DeleteFunc(slices.Clone(everyone), func(host string) bool { return host == s.hosts[0] })
	s.random.Shuffle(len(everyone), func(i, j int) { everyone[i], everyone[j] = everyone[j], everyone[i] })
	middle := len(everyone) / 2
	part := func(name string, some, others []string) fault {
		return fault{name, func() (end func()) {
			for _, a := range some {
				for _, b := range others {
					if a != b {
						s.network.Part(a, b)
					}
				}
			}
			return func() { s.network.Heal(s.t) }
		}}
	}
	return []fault{
		part("a master is cut off from the other machines", at, machines),
		part("a master is cut off from those that watch it", at, watchers),
		part("a master is cut off from all but a node", at, but),
		part("a master is cut off from all", at, everyone),
		part("a node is cut off from a master", []string{pick(s, s.hosts)}, at),
		part("a node is cut off from the watching ones", []string{pick(s, s.hosts)}, watchers),
		part("two are cut off from each other", everyone[:1], everyone[1:2]),
		part("halves", everyone[:middle], everyone[middle:]),
		part("halves that one host joins", everyone[:middle], everyone[middle+1:]),
	}
}

// troubles returns what can go wrong with the machines, and what their operators can do.
func (s *storm) troubles(master *redistest.Server) []fault {
	t, others := s.t, s.others(master)
	nothing := func() {}
	suspend := func(name string, m *redistest.Server) fault {
		return fault{name + " is suspended", func() (end func()) {
			m.Pause(t)
			return func() { m.Resume(t) }
		}}
	}
	setClock := func(name string, m *redistest.Server) fault {
		by := time.Duration(s.random.IntN(11)-5) * time.Second
		return fault{fmt.Sprintf("the clock of %s is set by %v", name, by), func() (end func()) {
			m.Clock.Advance(by)
			return nothing
		}}
	}
	all := []fault{
		suspend("a master", master), suspend("another machine", pick(s, others)), suspend("a watching one", pick(s, s.watchers(master))),
		setClock("a master", master), setClock("another machine", pick(s, others)),
		{"a master is killed", func() (end func()) {
			replaced := s.replacement(master)
			followed(t, master) // one that has just joined, without data, could be promoted
			master.Kill()
			return func() {
				replaced() // earlier it would be the master again, and have nothing
				master.Restart(t)
			}
		}},
	}
	if s.cluster != nil {
		return append(all,
			fault{"a replica takes its master's place", func() (end func()) { s.cluster.Failover(t, master); return nothing }},
			fault{"slots move", func() (end func()) { s.moveSlots(master); return nothing }})
	}
	kill := func(name string, m *redistest.Server) fault {
		return fault{name + " is killed", func() (end func()) {
			m.Kill()
			return func() { m.Restart(t) }
		}}
	}
	all = append(all, kill("a replica", pick(s, others)), kill("a Sentinel", pick(s, s.sentinel.Sentinels)),
		fault{"a replica is to be the master", func() (end func()) {
			// fails if another is under way
			_ = pick(s, s.sentinel.Sentinels).Try("SENTINEL", "FAILOVER", redistest.MasterName).Error()
			return nothing
		}},
		fault{"a replica joins", func() (end func()) { s.sentinel.Join(t); return nothing }})
	if len(others) > 2 {
		all = append(all, fault{"a replica leaves", func() (end func()) { s.sentinel.Leave(t, pick(s, others)); return nothing }})
	}
	return all
}

// replacement returns a function that waits until another machine is master in a master's place.
func (s *storm) replacement(of *redistest.Server) (wait func()) {
	if s.cluster == nil {
		return func() { s.sentinel.WaitForMaster(s.t, of) }
	}
	replaced := s.cluster.Replacement(s.t, of)
	return func() { replaced() }
}

// moveSlots moves those of some callers from a master to another.
func (s *storm) moveSlots(from *redistest.Server) {
	to := from
	for to == from {
		to = s.master()
	}
	for _, c := range counters(s.t, from) {
		if slot := s.cluster.Slot(s.t, c.name); s.random.IntN(2) == 0 && s.cluster.MasterAt(s.t, slot) == from {
			s.cluster.BeginMove(s.t, slot, to)()
		}
	}
}

// strike lets n faults happen, some of them two at a time.
func (s *storm) strike(n int) {
	for range n {
		master := s.master()
		var some []fault
		which := s.random.IntN(3)
		if which != 0 {
			some = append(some, pick(s, s.troubles(master)))
		}
		if which != 1 {
			some = append(some, pick(s, s.cuts(master)))
		}
		var ends []func()
		for _, f := range some {
			s.t.Logf("%v: %s", time.Now().Format(time.StampMilli), f.name)
			ends = append(ends, f.begin())
			s.wait(5)
		}
		for _, end := range slices.Backward(ends) { // machines may need the network
			end()
		}
		s.wait(2)
	}
}

// wait waits for up to a number of seconds.
func (s *storm) wait(seconds int) {
	<-time.After(time.Duration(s.random.IntN(1000*seconds)) * time.Millisecond)
}

// paced has each node decide a request every few milliseconds while during runs.
func (s *storm) paced(during func()) {
	over := make(chan struct{})
	defer close(over)
	for _, n := range s.nodes {
		go func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				n.decide(s.callers()[i%len(s.callers())])
				select {
				case <-tick.C:
				case <-over:
					return
				}
			}
		}()
	}
	during()
}

// nothingIsLost checks what the masters have when each node has reached them.
func (s *storm) nothingIsLost() {
	t := s.t
	t.Helper()
	defer s.showIfFailed()
	eventually(t, "the nodes count in common", func() bool {
		ready := true
		for _, n := range s.nodes {
			for _, caller := range s.callers() {
				ready = n.decide(caller).Outcome == weir.Counted && !n.over.Health().Failing && ready
			}
		}
		return ready
	})
	var missing, again, lost int64
	// some is given again later
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		missing, again, lost = total(s.nodes, weir.Counted, weir.CountedLocally)-s.counted(), 0, 0
		for _, n := range s.nodes {
			again += n.store.Stats().CountedAgain
			lost += n.outages().Lost
		}
		if missing <= lost {
			break
		}
		<-time.After(100 * time.Millisecond)
	}
	for i, n := range s.nodes {
		if emptied := n.store.Stats().Emptied; emptied > 0 {
			t.Errorf("node %d has found a master without data", i)
		}
	}
	if missing > lost {
		t.Errorf("the masters lack %d units that were admitted, and %d are reported as lost", missing, lost)
	}
	t.Logf("%d in common, %d here: %d missing, %d reported as lost, %d counted again", total(s.nodes, weir.Counted), total(s.nodes, weir.CountedLocally), missing, lost, again)
}

// showIfFailed logs how a request fares at each node, and what all wait for, if the test failed.
func (s *storm) showIfFailed() {
	if !s.t.Failed() {
		return
	}
	counted := true
	for i, n := range s.nodes {
		for _, caller := range s.callers() {
			r, health, state := n.decide(caller), n.over.Health(), n.store.State()
			counted = counted && r.Outcome == weir.Counted
			s.t.Logf("node %d: %s is %v; %+v; %+v", i, caller, r.Outcome, health, state)
		}
	}
	if !counted {
		var all strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
		s.t.Log(all.String())
	}
}

// counted returns what the masters have counted.
func (s *storm) counted() (units int64) {
	if s.cluster == nil {
		return one(s.t, s.master()).count
	}
	for _, m := range s.machines() {
		if m.Info(s.t, "replication")["role"] != "master" {
			continue
		}
		for _, c := range counters(s.t, m) {
			if s.cluster.MasterOf(s.t, c.name) == m {
				units += c.count
			}
		}
	}
	return units
}

var (
	stormSeed = flag.Uint64("storm", 0, "the seed of TestNoStormLosesAUnit instead of its own ones")
	strikes   = flag.Int("strikes", 4, "how many faults, or two at a time, come one after the other in it")
)

// Whatever is cut off from whatever, suspended or killed, and whatever clock is set, the masters
// that are left have every unit that a node admitted, but for those that are reported as lost.
func TestNoStormLosesAUnit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		cluster bool
		leases  redisstore.Leasing
		seed    uint64
	}{
		{"Sentinels", false, redisstore.LeasesOff, 1},
		{"Sentinels, leases", false, redisstore.LeasesAuto, 2},
		{"cluster", true, redisstore.LeasesOff, 3},
		{"cluster, leases", true, redisstore.LeasesAuto, 4},
	} {
		t.Run(c.name, func(t *testing.T) { // one at a time: each has up to nine servers
			s := newStorm(t, cmp.Or(*stormSeed, c.seed), c.cluster, redisstore.Options{Leases: c.leases})
			s.paced(func() { s.strike(*strikes) })
			s.nothingIsLost()
		})
	}
}

// A master whose place a replica has taken goes on while it does not hear of that. A node that
// reaches both sends it nothing more, since all that it counts is dropped.
func TestAStaleMasterCountsNothing(t *testing.T) {
	t.Parallel()
	s := newStorm(t, 5, true, redisstore.Options{})
	master := s.master()
	replica := s.cluster.ReplicaOf(t, master)
	s.paced(func() {
		master.Clock.Advance(-time.Minute) // it does not notice that no other machine answers
		for _, other := range s.others(master) {
			s.network.Part(master.Host(), other.Host())
		}
		eventually(t, "the replica takes its place", func() bool { return replica.Info(t, "replication")["role"] == "master" })
		for _, n := range s.nodes {
			for _, caller := range s.callers() {
				for range 20 {
					n.until(caller, weir.Counted)
				}
			}
		}
		if master.Info(t, "replication")["role"] != "master" {
			t.Error("the master has heard that it was replaced")
		}
		s.network.Heal(t)
	})
	s.nothingIsLost()
}
