package redis_test

import (
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// A crowd is two nodes under two policies. One policy has a limit that is never
// reached, and shows how many units are lost; the other has a small limit, and
// shows how many more requests are admitted.
type crowd struct {
	t          *testing.T
	big, small []*node
}

const (
	smallLimit = 2000
	// inCrowd is how long a take of a crowd may take. Its flood leaves the servers and the nodes
	// of a busy machine no 50 ms: they would count by themselves for as long as it lasts.
	inCrowd = time.Second
)

func newCrowd(t *testing.T, o redisstore.Options) *crowd {
	t.Helper()
	c := &crowd{t: t}
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	for range 2 {
		s := open(t, o)
		c.big = append(c.big, newNode(t, s, inCrowd, hourly(1e9)))
		c.small = append(c.small, newNode(t, s, inCrowd, daily(smallLimit)))
	}
	t.Cleanup(c.logState) // before the stores are closed
	for _, n := range append(c.big, c.small...) {
		n.until("a", weir.Counted)
		n.keepProbing() // units that are leased ahead may serve all takes, and these end no outage
	}
	return c
}

// logState logs what the nodes know of the store if the test has failed, and where their goroutines
// wait.
func (c *crowd) logState() {
	if !c.t.Failed() {
		return
	}
	for _, n := range append(c.big, c.small...) {
		c.t.Logf("%+v, %+v, %+v", n.store.State(), n.over.Health(), n.store.Stats())
	}
	all := make([]byte, 1<<20)
	c.t.Logf("%s", all[:runtime.Stack(all, true)])
}

// through sends requests from the crowd without a pause while fail replaces the
// master. It returns the number of admitted units that the new master does not
// have, besides those that are reported as lost.
func (c *crowd) through(old *redistest.Server, fail func() *redistest.Server) (lost int64) {
	t := c.t
	t.Helper()
	name := ""
	for _, k := range counters(t, old) {
		left, err := old.Try("TTL", k.name).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		if left <= 3600 {
			name = k.name
		}
	}
	followed(t, old)
	var master *redistest.Server
	flood(c.big, 8, func() {
		eventually(t, "there is load", func() bool { return total(c.big, weir.Counted) > 2000 })
		flood(c.small, 4, func() {
			eventually(t, "there is more load", func() bool {
				// on a busy machine a node may have counted by itself, and used the limit up
				return total(c.small, weir.Counted, weir.CountedLocally) > smallLimit/10
			})
			master = fail()
			c.countsMore()
		}, "a")
	}, "a")
	eventually(t, "all is given back", func() bool {
		ready := true
		for _, n := range append(c.big, c.small...) {
			ready = n.decide("a").Outcome == weir.Counted && !n.over.Health().Failing && ready
		}
		return ready
	})
	if n := total(c.small, weir.Counted, weir.CountedLocally); n > 2*smallLimit {
		t.Errorf("two nodes with a limit of %d admitted %d", smallLimit, n)
	}
	if d := c.small[0].decide("a"); d.Allowed {
		eventually(t, "the limit is reached", func() bool { return !c.small[0].decide("a").Allowed })
	}
	found := false
	for _, k := range counters(t, master) {
		if k.name == name {
			found = true
			lost = total(c.big, weir.Counted, weir.CountedLocally) - k.count - c.reportedLost()
		}
	}
	if !found {
		t.Errorf("the new master knows nothing of %s", name)
	}
	t.Logf("%d units in common and %d here, %d takes failed: %d were lost besides the %d that were reported; of a limit of %d %d were admitted, %d of them here; %+v",
		total(c.big, weir.Counted), total(c.big, weir.CountedLocally), c.big[0].store.failed.Load()+c.big[1].store.failed.Load(), lost, c.reportedLost(),
		smallLimit, total(c.small, weir.Counted, weir.CountedLocally), total(c.small, weir.CountedLocally), c.big[0].outages())
	return lost
}

// reportedLost returns how many units that were counted locally are known to be lost: on a busy
// machine the server may not confirm in time that it has received them.
func (c *crowd) reportedLost() (units int64) {
	for _, n := range c.big {
		units += n.outages().Lost
	}
	return units
}

// nothingIsLost checks that a new master has what the nodes were admitted. What may
// be missing there is counted again, so some of it is counted twice: what came
// between two looks at the offset.
func (c *crowd) nothingIsLost(lost int64) {
	c.t.Helper()
	if reported, local := c.reportedLost(), total(c.big, weir.CountedLocally); reported > local/10 {
		c.t.Errorf("of %d units that were counted locally %d are reported as lost", local, reported)
	}
	if lost > 0 {
		c.t.Errorf("%d units were lost", lost)
	}
}

// followed waits until the replicas of a master have its data. If a replica has
// just connected, it may receive no new data for up to a second, though it reports
// that it follows.
func followed(t *testing.T, master *redistest.Server) {
	t.Helper()
	offset := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	want := offset(master.Info(t, "replication")["master_repl_offset"])
	eventually(t, "the replicas have everything", func() bool {
		info := master.Info(t, "replication")
		replicas := 0
		for name, value := range info {
			if !strings.HasPrefix(name, "slave") || !strings.Contains(value, "offset=") {
				continue
			}
			_, rest, _ := strings.Cut(value, "offset=")
			has, _, _ := strings.Cut(rest, ",")
			if offset(has) < want {
				return false
			}
			replicas++
		}
		return replicas > 0 && strconv.Itoa(replicas) == info["connected_slaves"]
	})
}

// Sentinels replace a dead master, and counting in common resumes by itself (D25).
func TestSentinelsReplaceADeadMaster(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	c := newCrowd(t, redisstore.Options{Addresses: s.Addrs(), Master: redistest.MasterName})
	old := s.Master(t)
	lost := c.through(old, func() *redistest.Server {
		old.Kill()
		return s.WaitForMaster(t, old)
	})
	c.nothingIsLost(lost)
	if st := c.big[0].store.State(); !st.Ready || st.Mode != "sentinel" {
		t.Errorf("the state is %+v", st)
	}
}

// Sentinels can be ordered to replace a live master. It goes on counting until they
// demote it. The new master does not receive that: the nodes count it there again.
func TestSentinelsReplaceALiveMaster(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	c := newCrowd(t, redisstore.Options{Addresses: s.Addrs(), Master: redistest.MasterName})
	lost := c.through(s.Master(t), func() *redistest.Server { return c.replaced(s) })
	c.nothingIsLost(lost)
}

// What nodes had leased is dropped, and counted at the new master as well.
func TestSentinelsReplaceALiveMasterOfNodesThatLease(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	c := newCrowd(t, redisstore.Options{Addresses: s.Addrs(), Master: redistest.MasterName, Leases: redisstore.LeasesAuto})
	lost := c.through(s.Master(t), func() *redistest.Server { return c.replaced(s) })
	c.nothingIsLost(lost)
	if n := c.big[0].store.Stats().Leases.Takes; n == 0 {
		t.Error("no take was served from leased units")
	}
}

// The second promotion in a row counts nothing again that the first one has.
func TestSentinelsReplaceALiveMasterTwice(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	c := newCrowd(t, redisstore.Options{Addresses: s.Addrs(), Master: redistest.MasterName})
	lost := c.through(s.Master(t), func() *redistest.Server {
		first := c.replaced(s)
		c.countsMore()
		followed(t, first)
		return c.replaced(s)
	})
	c.nothingIsLost(lost)
	if twice := total(c.big, weir.Counted, weir.CountedLocally) / 2; -lost > twice {
		t.Errorf("%d of %d units were counted twice", -lost, 2*twice)
	}
}

// replaced lets Sentinels replace their living master, and waits until nothing is
// counted there. It checks that the nodes counted something again.
func (c *crowd) replaced(s *redistest.Sentinel) *redistest.Server {
	c.t.Helper()
	again := func() (units int64) {
		for _, n := range c.big {
			units += n.store.Stats().CountedAgain
		}
		return units
	}
	before, old := again(), s.Master(c.t)
	master := s.Failover(c.t)
	// it closes all connections when it is demoted
	eventually(c.t, "the old one knows", func() bool {
		info, err := old.Try("INFO", "replication").ToString()
		return err == nil && strings.Contains(info, "role:slave")
	})
	eventually(c.t, "what the new one lacks is counted again", func() bool { return again() > before })
	return master
}

// countsMore waits until every node has counted more in common.
func (c *crowd) countsMore() {
	c.t.Helper()
	for _, n := range append(c.big, c.small...) {
		counted := n.allowed[weir.Counted].Load() + n.refused[weir.Counted].Load()
		eventually(c.t, "it is counted in common again", func() bool {
			return !n.over.Health().Failing && n.allowed[weir.Counted].Load()+n.refused[weir.Counted].Load() > counted+10
		})
	}
}

// Sentinels are needed to find the master, but not to count there.
func TestConnectedNodesDoNotNeedSentinels(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	o := redisstore.Options{Addresses: s.Addrs(), Master: redistest.MasterName}
	n := newNode(t, open(t, o), lenient, hourly(1e6))
	n.until("a", weir.Counted)
	master := s.Master(t)
	for _, watch := range s.Sentinels {
		watch.Kill()
	}
	late := newNode(t, open(t, o), lenient, hourly(1e6))
	n.crowd("a", 1000)
	late.crowd("a", 100)
	if local := n.allowed[weir.CountedLocally].Load(); local > 0 {
		t.Errorf("%d were counted locally", local)
	}
	if common := late.allowed[weir.Counted].Load(); common > 0 {
		t.Errorf("%d were counted in common by a node that could not find the master", common)
	}
	for _, watch := range s.Sentinels {
		watch.Restart(t)
	}
	late.recovered("a", 1)
	late.until("a", weir.Counted)
	if c, want := one(t, master), total([]*node{n, late}, weir.Counted, weir.CountedLocally); c.count != want {
		t.Errorf("%d units were admitted, and %+v", want, c)
	}
}

// A master that restarts after Sentinels have named another is not gone back to: what it counts
// before it becomes a replica is dropped.
func TestAMasterThatRestartsTooLateCountsNothing(t *testing.T) {
	t.Parallel()
	old, next := redistest.Start(t), redistest.Start(t)
	sentinel := redistest.StartSentinelOf(t, old)
	s := open(t, redisstore.Options{Addresses: []string{sentinel.Addr()}, Master: redistest.MasterName})
	n := newNode(t, s, lenient, hourly(1e6))
	n.until("a", weir.Counted)
	sentinel.Do(t, "SENTINEL", "REMOVE", redistest.MasterName)
	sentinel.Do(t, "SENTINEL", "MONITOR", redistest.MasterName, "127.0.0.1", port(next.Addr()), "1")
	old.Restart(t)
	eventually(t, "the next master counts", func() bool { return n.decide("a").Outcome == weir.Counted && len(counters(t, next)) > 0 })
	if all := counters(t, old); len(all) > 0 {
		t.Errorf("the old master has counted %+v", all)
	}
}
