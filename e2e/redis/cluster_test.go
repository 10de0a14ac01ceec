package redis_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

func TestAClusterReplacesAMasterThatDied(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	c := newCrowd(t, redisstore.Options{Addresses: cluster.Addrs()})
	old := masterOf(t, cluster, c.big[0])
	c.nothingIsLost(c.through(old, func() *redistest.Server { return cluster.Crash(t, old) }))
}

// A planned failover loses no units.
func TestAClusterHandsAMastersSlotsOver(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	c := newCrowd(t, redisstore.Options{Addresses: cluster.Addrs()})
	old := masterOf(t, cluster, c.big[0])
	c.nothingIsLost(c.through(old, func() *redistest.Server { return cluster.Failover(t, old) }))
}

// masterOf returns the master that holds all keys.
func masterOf(t *testing.T, c *redistest.Cluster, n *node) *redistest.Server {
	t.Helper()
	for _, s := range c.Nodes[:3] {
		if len(counters(t, s)) > 0 {
			return s
		}
	}
	t.Fatal("no master has a counter")
	return nil
}

// While slots move (MOVED, ASK, TRYAGAIN), each caller is counted exactly.
func TestMovingSlotsAreCountedExactly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		windows func(limit int64) []weir.Window
	}{
		{"one window", func(limit int64) []weir.Window { return []weir.Window{hourly(limit)} }},
		{"two windows", func(limit int64) []weir.Window { return []weir.Window{hourly(limit), daily(limit + 1)} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			const limit = 8000
			who := []string{"a", "b", "c", "d"}
			cluster := redistest.StartCluster(t, 3, 0)
			o := redisstore.Options{Addresses: cluster.Addrs()}
			nodes := []*node{
				newNode(t, open(t, o), lenient, c.windows(limit)...),
				newNode(t, open(t, o), lenient, c.windows(limit)...),
			}
			for _, w := range who {
				nodes[0].until(w, weir.Counted)
			}
			slots := make(map[int]string) // slot to one of its keys
			for _, k := range counters(t, cluster.Nodes...) {
				slots[cluster.Slot(t, k.name)] = k.name
			}
			if len(slots) != len(who) {
				t.Fatalf("%d callers are counted in %d slots", len(who), len(slots))
			}
			moves, idle := 0, 0 // moves, and those during which no request was admitted
			flood(nodes, 2*len(nodes)*len(who), func() {
				eventually(t, "all limits are reached", func() bool {
					for slot, key := range slots {
						before := total(nodes, weir.Counted)
						move(t, cluster, slot, key, nodes)
						if moves++; total(nodes, weir.Counted) == before {
							idle++
						}
					}
					for _, w := range who {
						if nodes[0].decide(w).Allowed {
							return false
						}
					}
					return true
				})
			}, who...)
			admitted, local := total(nodes, weir.Counted, weir.CountedLocally), total(nodes, weir.CountedLocally)
			failed := nodes[0].store.failed.Load() + nodes[1].store.failed.Load()
			t.Logf("%d moves, %d of them idle; %d takes failed, %d were counted locally", moves, idle, failed, local)
			if admitted != int64(limit*len(who)) || local > 0 {
				t.Errorf("%d were admitted, %d of them locally; the limits are %d together", admitted, local, limit*len(who))
			}
			for _, k := range counters(t, cluster.Nodes...) {
				if k.count != limit {
					t.Errorf("%d were admitted, and %+v", limit, k)
				}
			}
		})
	}
}

// While a slot moves, two windows can be on two machines, or one window can be
// missing (TRYAGAIN). The cluster counts them together again once both have moved.
// Requests wait until the deadline at most.
func TestWindowsSplitByAMovingSlot(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, 0)
	s := open(t, redisstore.Options{Addresses: cluster.Addrs()})
	patient, n := newNode(t, s, lenient, hourly(1e6), daily(1e6)), newNode(t, s, deadline, hourly(1e6), daily(1e6))
	patient.until("a", weir.Counted)
	windows := counters(t, cluster.Nodes...)
	from := cluster.MasterOf(t, windows[0].name)
	to := cluster.Nodes[1-slices.Index(cluster.Nodes, from)]
	id := func(s *redistest.Server) string {
		id, err := s.Try("CLUSTER", "MYID").ToString()
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	slot := strconv.Itoa(cluster.Slot(t, windows[0].name))
	host, port, _ := strings.Cut(to.Addr(), ":")
	to.Do(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", id(from))
	from.Do(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", id(to))
	from.Do(t, "MIGRATE", host, port, windows[0].name, "0", "5000")

	n.until("a", weir.CountedLocally)
	n.crowd("a", 100)
	counted := make(chan weir.Decision, 1)
	tryAgains := func() string { return from.Info(t, "errorstats")["errorstat_TRYAGAIN"] }
	before := tryAgains()
	go func() { counted <- patient.decide("a") }()
	eventually(t, "a request waits", func() bool { return tryAgains() != before })
	// While the windows are apart no take is counted. A take that is sent again when they are
	// together is: if its answer is late, it is counted here too, and given to the store later.
	unanswered := n.store.unanswered.Load()
	from.Do(t, "MIGRATE", host, port, windows[1].name, "0", "5000")
	if d := <-counted; d.Outcome != weir.Counted {
		t.Errorf("the windows are together again, and the waiting caller has %+v", d)
	}
	for _, s := range []*redistest.Server{to, from} {
		s.Do(t, "CLUSTER", "SETSLOT", slot, "NODE", id(to))
	}
	n.recovered("a", 1)
	both := []*node{n, patient}
	twice := n.store.unanswered.Load() - unanswered
	for _, w := range counters(t, to) {
		if want := total(both, weir.Counted, weir.CountedLocally); w.count < want || w.count > want+twice {
			t.Errorf("%d units were admitted, %d takes were not answered, and %+v", want, twice, w)
		}
	}
}

// move moves a slot from one master to the next. Meanwhile its keys are already on
// the next master, and clients are redirected.
func move(t *testing.T, c *redistest.Cluster, slot int, key string, nodes []*node) {
	t.Helper()
	from := slices.Index(c.Nodes, c.MasterOf(t, key))
	finish := c.BeginMove(t, slot, c.Nodes[(from+1)%len(c.Nodes)])
	asked := nodes[0].store.Stats().Asked
	eventually(t, "some are sent after the key", func() bool { return nodes[0].store.Stats().Asked > asked+10 })
	finish()
}

// A master without a replica dies. Only the callers that it counts are affected.
func TestADeadMasterAffectsOnlyItsCallers(t *testing.T) {
	t.Parallel()
	cluster := partial(t)
	n := newNode(t, open(t, redisstore.Options{Addresses: cluster.Addrs()}), deadline, hourly(1e6))
	of := make(map[*redistest.Server]string) // a caller that it counts
	for i := 0; len(of) < 3; i++ {
		who := fmt.Sprint("user-", i)
		n.until(who, weir.Counted)
		for _, s := range cluster.Nodes {
			if of[s] == "" && len(counters(t, s)) > 0 {
				of[s] = who
			}
		}
	}
	dead := cluster.Nodes[2]
	dead.Kill()
	eventually(t, "one is counted locally, the others in common", func() bool {
		a, b, c := n.decide(of[cluster.Nodes[0]]), n.decide(of[cluster.Nodes[1]]), n.decide(of[dead])
		return a.Outcome == weir.Counted && b.Outcome == weir.Counted && c.Outcome == weir.CountedLocally
	})
	common := n.allowed[weir.Counted].Load()
	for range 500 {
		n.decide(of[cluster.Nodes[0]])
		n.decide(of[cluster.Nodes[1]])
		n.decide(of[dead])
	}
	t.Logf("of 1,500 decisions %d were counted in common", n.allowed[weir.Counted].Load()-common)
	dead.Restart(t)
	n.recovered(of[dead], 1)
	eventually(t, "all are counted in common", func() bool {
		return n.decide(of[cluster.Nodes[0]]).Outcome == weir.Counted && n.decide(of[cluster.Nodes[1]]).Outcome == weir.Counted && n.decide(of[dead]).Outcome == weir.Counted
	})
}

// Check reports windows that a cluster cannot count together, before any request. A
// take of such windows fails.
func TestWindowsThatAClusterCannotCountTogether(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	// one address is enough to detect a cluster
	s := open(t, redisstore.Options{Addresses: cluster.Addrs()[:1]})
	if st := s.State(); st.Mode != "cluster" {
		t.Errorf("the state is %+v", st)
	}
	policy := weir.Policy{Limiters: []weir.Limiter{
		{Name: "fine", Windows: []weir.Window{
			{Limit: 1, Per: time.Hour, Key: weir.Key{{"user"}}},
			{Limit: 1, Per: time.Minute, Key: weir.Key{{"user"}, {"ip"}}},
		}},
		{Name: "crossed", Windows: []weir.Window{
			{Limit: 1, Per: time.Hour, Key: weir.Key{{"user"}}},
			{Limit: 1, Per: time.Minute, Key: weir.Key{{"ip"}, {"user"}}},
		}},
	}}
	err := s.Check(policy)
	if err == nil || !strings.Contains(err.Error(), `"crossed"`) || strings.Contains(err.Error(), `"fine"`) {
		t.Errorf("Check returns %v", err)
	}
	if err := open(t, at(redistest.Start(t))).Check(policy); err != nil {
		t.Errorf("one server can count it, and Check returns %v", err)
	}
	for i := range 20 {
		var r weir.Receipt
		err := s.Take(t.Context(), []weir.Charge{charge(fmt.Sprint("a", i), 9, 3600, 1), charge(fmt.Sprint("b", i), 9, 60, 1)}, &r)
		if err == nil {
			t.Errorf("windows of two callers were counted together: %+v", r)
		}
	}
	if n := len(counters(t, cluster.Nodes...)); n > 0 {
		t.Errorf("%d windows have been charged", n)
	}
	take(t, s, charge("a", 9, 3600, 1), charge("a", 9, 60, 1))
}

// The slots of requests under way on a dead master do not keep other callers from taking some.
func TestADeadMasterAffectsOnlyItsSlots(t *testing.T) {
	t.Parallel()
	cluster := partial(t)
	var ahead atomic.Int64
	s := open(t, redisstore.Options{Addresses: cluster.Addrs(), Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	of := make(map[*redistest.Server]string) // a caller that it counts
	for i := 0; len(of) < 3; i++ {
		who := fmt.Sprint("user-", i)
		admitted(t, s, charge(who, 9, 3600, 1))
		for _, node := range cluster.Nodes {
			if of[node] == "" && len(counters(t, node)) > 0 {
				of[node] = who
			}
		}
	}
	for _, who := range of {
		admitted(t, s, slot(who, 9))
	}
	cluster.Nodes[2].Kill()
	ahead.Add(int64(5 * time.Second)) // the slots should have been renewed meanwhile
	for _, node := range cluster.Nodes[:2] {
		eventually(t, "a caller of another master gets a slot", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			var r weir.Receipt
			return s.Take(ctx, []weir.Charge{slot(of[node], 9)}, &r) == nil
		})
	}
}

// While a slot of a cluster moves, settlements of its windows may have to wait. Others do not wait
// for them.
func TestASettlementInAMovingSlotKeepsNoOthersWaiting(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, 0)
	s := open(t, redisstore.Options{Addresses: cluster.Addrs()})
	moving := admitted(t, s, charge("a", 100, 3600, 3))
	name := counters(t, cluster.Nodes...)[0].name
	from := cluster.MasterOf(t, name)
	to := cluster.Nodes[1-slices.Index(cluster.Nodes, from)]
	others := admitted(t, s, charge("b", 100, 3600, 3))
	slot := strconv.Itoa(cluster.Slot(t, name))
	id, err := to.Try("CLUSTER", "MYID").ToString()
	if err != nil {
		t.Fatal(err)
	}
	// its window is there, and the mark of a reset is not: the server says TRYAGAIN
	from.Do(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", id)

	settled := make(chan []weir.Change, 1)
	go func() {
		changes := moving.changes(1)
		_ = s.Settle(context.Background(), &moving.receipt.Ticket, changes)
		settled <- changes
	}()
	eventually(t, "a settlement waits", func() bool {
		return from.Info(t, "errorstats")["errorstat_TRYAGAIN"] != ""
	})
	others.settle(t, s, 1)
	if len(settled) > 0 {
		t.Error("a settlement of another slot was answered after that of the moving one")
	}
	from.Do(t, "CLUSTER", "SETSLOT", slot, "STABLE")
	if changes := <-settled; !changes[0].Done || changes[0].Used.Count != 1 {
		t.Errorf("the slot stays, and its settlement is %+v", changes[0])
	}
}

// Settlements on a machine that does not answer keep those on others from nothing.
func TestASettlementOnAHungMachineKeepsNoOthersWaiting(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, 0)
	s := leasing(t, redisstore.Options{Addresses: cluster.Addrs()})
	of := func(node *redistest.Server) taken {
		for i := range 100 {
			before := len(counters(t, node))
			if k := admitted(t, s, charge(fmt.Sprint("user ", i), 100, 3600, 20)); len(counters(t, node)) > before {
				return k
			}
		}
		t.Fatal("a machine has no caller")
		return taken{}
	}
	hung, healthy := of(cluster.Nodes[0]), of(cluster.Nodes[1])
	cluster.Nodes[0].Pause(t)
	settled := make(chan error, 1)
	go func() { settled <- s.Settle(context.Background(), &hung.receipt.Ticket, hung.changes(19)) }()
	for range 10 {
		c := healthy.changes(19)
		if err := s.Settle(t.Context(), &healthy.receipt.Ticket, c); err != nil || !c[0].Done {
			t.Fatalf("on the healthy machine: %+v, %v", c[0], err)
		}
	}
	if len(settled) > 0 {
		t.Error("it was answered after the settlement on the hung machine")
	}
	cluster.Nodes[0].Resume(t)
	<-settled
}

// The machines of a cluster have clocks of their own. What a node serves from leased units is dated
// by the one that counts the window, as all its other answers are.
func TestLeasedUnitsAreDatedByTheirMachine(t *testing.T) {
	t.Parallel()
	c := redistest.StartClusterIn(t, new(redistest.Network), 3, 0)
	for i, m := range c.Nodes {
		m.Clock.Advance(time.Duration(3*i) * time.Second)
	}
	s := leasing(t, redisstore.Options{Addresses: c.Addrs()})
	n := newNode(t, s, lenient, hourly(1e6))
	began := time.Now()
	for i := range 500 * 8 {
		d := n.decide(string("abcdefgh"[i%8])) // fails if its window ends in more than an hour
		if left, least := d.Binding().Reset-d.Now, 3600-int64(time.Since(began).Seconds())-2; left < least {
			t.Fatalf("at %d a window of an hour, opened a moment ago, ends in %d s", d.Now, left)
		}
	}
	if s.Stats().Leases.Takes == 0 {
		t.Error("no take was served from leased units")
	}
}
