package redis_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// A taken is a take that can be settled.
type taken struct {
	charges []weir.Charge
	receipt weir.Receipt
}

// admitted takes, and fails the test if that is refused.
func admitted(t testing.TB, s weir.Store, charges ...weir.Charge) taken {
	t.Helper()
	k := taken{charges: charges}
	if err := s.Take(context.Background(), charges, &k.receipt); err != nil || !k.receipt.Allowed {
		t.Fatalf("the take was answered %+v, %v", k.receipt, err)
	}
	return k
}

// changes returns what settles the take to these units.
func (k *taken) changes(units ...int64) []weir.Change {
	all := make([]weir.Change, len(units))
	for i := range all {
		all[i] = weir.Change{Charge: k.charges[i], Reset: k.receipt.Used[i].Reset, Units: units[i] - k.charges[i].Cost}
	}
	return all
}

// settle settles the take to these units.
func (k *taken) settle(t testing.TB, s weir.Settler, units ...int64) []weir.Change {
	t.Helper()
	all := k.changes(units...)
	if err := s.Settle(t.Context(), &k.receipt.Ticket, all); err != nil {
		t.Fatal(err)
	}
	return all
}

// spent returns how much of a window is spent.
func spent(t testing.TB, s weir.Store, c weir.Charge) int64 {
	t.Helper()
	var r weir.Receipt
	c.Cost = 0
	if err := s.Take(context.Background(), []weir.Charge{c}, &r); err != nil {
		t.Fatal(err)
	}
	return r.Used[0].Count
}

// byTheClock returns a charge of a window of a day that ends by the clock: its reset is the same
// however often it begins anew.
func byTheClock(t testing.TB, who string, limit, cost int64) weir.Charge {
	t.Helper()
	c := charge(who, limit, 86400, cost)
	var err error
	if c.Ends, err = weir.NewEnds(&weir.Limiter{Align: weir.AlignClock}, &weir.Window{Per: 24 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	return c
}

// Units go back into both windows of the take, or are charged beyond the limit, and nothing else
// changes.
func TestASettleChangesTheWindowsOfItsTake(t *testing.T) {
	t.Parallel()
	for name, start := range kinds() {
		t.Run(name, func(t *testing.T) {
			s := open(t, start(t))
			minute, day := charge("a", 10, 3600, 6), byTheClock(t, "a", 100, 6)
			k := admitted(t, s, minute, day)
			if take(t, s, minute, day).Allowed {
				t.Fatal("12 of 10 units were admitted")
			}
			for i, c := range k.settle(t, s, 2, 2) {
				if !c.Done || c.Lost || c.Used != (weir.Used{Count: 2, Reset: k.receipt.Used[i].Reset}) {
					t.Errorf("window %d is now %+v", i, c)
				}
			}
			again := admitted(t, s, minute, day) // although the refusal was remembered
			if got := again.receipt.Used[0]; got.Count != 8 || got.Reset != k.receipt.Used[0].Reset {
				t.Errorf("the minute went on as %+v", got)
			}
			if got := again.settle(t, s, 20, 20)[0]; got.Used.Count != 22 || !got.Done {
				t.Errorf("an overrun made it %+v", got)
			}
			if r := take(t, s, charge("a", 10, 3600, 1)); r.Allowed || r.Used[0].Count != 22 {
				t.Errorf("after the overrun: %+v", r)
			}
			if n := spent(t, s, byTheClock(t, "a", 100, 0)); n != 22 {
				t.Errorf("%d units of the day are spent, want 22", n)
			}
		})
	}
}

// kinds start a server, and a cluster of three.
func kinds() map[string]func(*testing.T) redisstore.Options {
	return map[string]func(*testing.T) redisstore.Options{
		"server": func(t *testing.T) redisstore.Options { return at(redistest.Start(t)) },
		"cluster": func(t *testing.T) redisstore.Options {
			return redisstore.Options{Addresses: redistest.StartCluster(t, 3, 0).Addrs()}
		},
	}
}

// A count is never negative, and never wraps.
func TestASettleKeepsTheCountInBounds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, at(server))
	k := admitted(t, s, charge("a", 100, 3600, 5))
	name := one(t, server).name
	server.Do(t, "DECRBY", name, "3") // another program has changed it
	if c := k.settle(t, s, 0)[0]; !c.Done || c.Used.Count != 0 {
		t.Errorf("giving 5 of 2 back made it %+v", c)
	}
	k = admitted(t, s, charge("a", 100, 3600, 5))
	if c := k.settle(t, s, weir.MaxLimit)[0]; c.Used.Count != weir.MaxLimit {
		t.Errorf("the highest cost made it %+v", c)
	}
	if n := spent(t, s, k.charges[0]); n != weir.MaxLimit {
		t.Errorf("it is %d", n)
	}
	if c := k.settle(t, s, 0)[0]; c.Used.Count != weir.MaxLimit { // it may stand for more
		t.Errorf("the highest count was lowered to %+v", c)
	}
	one(t, server) // which expires
}

// A window of the clock has the same reset after an operator has reset it. What was charged before
// is not given back into it. A take in the millisecond of the reset may be before it or after: it
// is lost.
func TestNothingIsGivenBackAfterAnOperatorsReset(t *testing.T) {
	t.Parallel()
	for name, start := range kinds() {
		t.Run(name, func(t *testing.T) {
			o := start(t)
			a, b := open(t, o), open(t, o)
			gone, kept := 0, 0
			eventually(t, "takes and a reset in different milliseconds", func() bool {
				first, second := admitted(t, a, byTheClock(t, "a", 1e6, 7)), admitted(t, a, byTheClock(t, "a", 1e6, 8))
				reset(t, b, first.charges...)
				if c := first.settle(t, a, 0)[0]; c.Done {
					t.Errorf("before the window is open again it is %+v", c)
				}
				after := admitted(t, b, byTheClock(t, "a", 1e6, 9))
				switch c := second.settle(t, a, 0)[0]; {
				case c.Done:
					t.Errorf("after the reset it is %+v", c)
				case !c.Lost:
					gone++
				}
				if n := spent(t, b, after.charges[0]); n != 9 {
					t.Errorf("%d units are spent, want 9", n)
				}
				if c := after.settle(t, b, 2)[0]; c.Done && c.Used.Count == 2 {
					kept++
				} else if !c.Lost {
					t.Errorf("a take after the reset was settled to %+v", c)
				}
				reset(t, b, first.charges...)
				return gone > 0 && kept > 0
			})
		})
	}
}

// A server that was restarted has lost its counts. A window of the clock begins anew with the same
// reset, and nothing is given back into it.
func TestNothingIsGivenBackToARestartedServer(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(t *testing.T, server *redistest.Server){
		"SIGKILL": func(_ *testing.T, server *redistest.Server) { server.Kill() },
		"SHUTDOWN NOSAVE": func(t *testing.T, server *redistest.Server) {
			_ = server.Try("SHUTDOWN", "NOSAVE")
			eventually(t, "it ends", func() bool { return !server.Running() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			o := at(server)
			o.Secret = make([]byte, 32)
			s, other := open(t, o), open(t, o)
			k := admitted(t, s, byTheClock(t, "a", 100, 7))
			stop(t, server)
			server.Restart(t)
			var now int64
			eventually(t, "it counts again", func() bool {
				var r weir.Receipt
				if other.Take(t.Context(), []weir.Charge{byTheClock(t, "a", 100, 9)}, &r) != nil {
					return false
				}
				now = r.Used[0].Count
				return true
			})
			if c := k.changes(0); s.Settle(t.Context(), &k.receipt.Ticket, c) == nil && !c[0].Lost || c[0].Done {
				t.Errorf("it was settled: %+v", c[0])
			}
			if n := spent(t, other, k.charges[0]); n != now {
				t.Errorf("%d units are spent, want %d", n, now)
			}
		})
	}
}

// If a settlement is not answered, it is lost and not repeated: its units are given back once or
// stay spent.
func TestAnUnansweredSettlementIsLostAndNotRepeated(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s := open(t, redisstore.Options{Addresses: []string{proxy.Addr()}, Timeout: 200 * time.Millisecond})
	direct := open(t, at(server))
	var before int64
	for round := range int64(6) {
		var k taken
		eventually(t, "the store answers", func() bool {
			k = taken{charges: []weir.Charge{byTheClock(t, "a", 1e6, 5)}}
			err := s.Take(t.Context(), k.charges, &k.receipt)
			before = spent(t, direct, k.charges[0])
			return err == nil
		})
		if round%2 == 0 {
			proxy.BlackHole()
		} else {
			proxy.Delay(time.Minute) // it arrives, and the answer does not
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		c := k.changes(1)
		err := s.Settle(ctx, &k.receipt.Ticket, c)
		cancel()
		if err == nil || !c[0].Lost || c[0].Done {
			t.Errorf("round %d: it was answered: %+v, %v", round, c[0], err)
		}
		proxy.Cut()
		proxy.Pass(t)
		eventually(t, "the store answers", func() bool { return s.Ping(t.Context()) == nil })
		if n := spent(t, direct, k.charges[0]); n != before && n != before-4 {
			t.Errorf("round %d: %d units are spent, want %d or %d", round, n, before, before-4)
		}
	}
}

// A hundred requests at a time are taken and settled on two nodes, with operators' resets of other
// windows in between. Then the count is what was served.
func TestTheCountIsWhatWasServed(t *testing.T) {
	t.Parallel()
	for name, start := range kinds() {
		t.Run(name, func(t *testing.T) {
			o := start(t)
			nodes := []*redisstore.Store{open(t, o), open(t, o)}
			var served [3]atomic.Int64
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					s := nodes[i%2]
					for range 20 {
						which := rand.IntN(3)
						c := byTheClock(t, string(rune('a'+which)), 1e9, 1+rand.Int64N(50))
						k := taken{charges: []weir.Charge{c}}
						if err := s.Take(t.Context(), k.charges, &k.receipt); err != nil || !k.receipt.Allowed {
							t.Errorf("%+v, %v", k.receipt, err)
							return
						}
						used := rand.Int64N(60)
						if c := k.changes(used); s.Settle(t.Context(), &k.receipt.Ticket, c) != nil || c[0].Lost || c[0].Done == (c[0].Units == 0) {
							t.Errorf("settled to %d: %+v", used, c[0])
						}
						served[which].Add(used)
					}
				})
			}
			all.Wait()
			for i := range served {
				c := byTheClock(t, string(rune('a'+i)), 1e9, 0)
				if n := spent(t, nodes[0], c); n != served[i].Load() {
					t.Errorf("%d units are spent, %d were served", n, served[i].Load())
				}
			}
		})
	}
}

// An outage goes on from the settled count, on the node that has settled.
func TestTheLastKnownCountIsSettled(t *testing.T) {
	t.Parallel()
	s := open(t, at(redistest.Start(t)))
	c := charge("a", 100, 3600, 50)
	k := admitted(t, s, c)
	k.settle(t, s, 3)
	var used [1]weir.Used
	if s.Recall([]weir.Charge{c}, used[:]); used[0].Count != 3 {
		t.Errorf("it remembers %+v, want 3", used[0])
	}
}

// What a master had counted is not given back to the replica that took its place: the replica may
// not know of it.
func TestNothingIsGivenBackToAPromotedReplica(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (o redisstore.Options, fail func()){
		"Sentinels": func(t *testing.T) (redisstore.Options, func()) {
			s := redistest.StartSentinel(t)
			return redisstore.Options{Addresses: s.Addrs(), Master: redistest.MasterName}, func() {
				old := s.Master(t)
				followed(t, old)
				old.Kill()
				s.WaitForMaster(t, old)
			}
		},
		"cluster": func(t *testing.T) (redisstore.Options, func()) {
			c := redistest.StartCluster(t, 3, 3)
			return redisstore.Options{Addresses: c.Addrs()}, func() {
				master := c.MasterOf(t, one(t, mastersOf(t, c)...).name)
				followed(t, master)
				c.Crash(t, master)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, fail := start(t)
			s := open(t, o)
			k := admitted(t, s, byTheClock(t, "a", 1e6, 7))
			fail()
			var now int64
			eventually(t, "the replica counts", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				var r weir.Receipt
				err := s.Take(ctx, []weir.Charge{byTheClock(t, "a", 1e6, 9)}, &r)
				now = r.Used[0].Count
				return err == nil
			})
			if c := k.changes(0); s.Settle(t.Context(), &k.receipt.Ticket, c) == nil && !c[0].Lost || c[0].Done {
				t.Errorf("it was settled: %+v", c[0])
			}
			// The take is counted again if it was at the replica before the promotion was seen.
			if n := spent(t, s, k.charges[0]); n != now && n != now+9 {
				t.Errorf("%d units are spent, want %d, or 9 more", n, now)
			}
		})
	}
}

// mastersOf returns the machines of a cluster that count.
func mastersOf(t *testing.T, c *redistest.Cluster) (masters []*redistest.Server) {
	t.Helper()
	for _, node := range c.Nodes {
		if node.Info(t, "replication")["role"] == "master" {
			masters = append(masters, node)
		}
	}
	return masters
}
