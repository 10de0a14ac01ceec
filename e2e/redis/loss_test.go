package redis_test

import (
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// markerOf is the key that every node knows, and that is gone with the counts.
const markerOf = "weir:marker"

// A server that was emptied answers on the same connection. The next settlement finds that, and
// gives nothing back into a window that has begun anew.
func TestNothingIsGivenBackToAnEmptiedServer(t *testing.T) {
	t.Parallel()
	for name, empty := range map[string]func(*testing.T, *redistest.Server){
		"FLUSHALL": func(t *testing.T, server *redistest.Server) { server.Do(t, "FLUSHALL") },
		"eviction": func(t *testing.T, server *redistest.Server) {
			marker, err := server.Try("GET", markerOf).ToString()
			if err != nil {
				t.Fatal(err)
			}
			server.Do(t, "CONFIG", "SET", "maxmemory", "1")
			eventually(t, "everything is evicted", func() bool {
				_ = server.Try("SET", "another", "1", "EX", "100") // evicts what it can
				return len(counters(t, server)) == 0
			})
			server.Do(t, "CONFIG", "SET", "maxmemory", "1gb")
			server.Do(t, "SET", markerOf, marker, "EX", "100000") // which happened to stay
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t, "--maxmemory", "1gb", "--maxmemory-policy", "volatile-ttl")
			o := at(server)
			o.Secret = make([]byte, 32)
			s := open(t, o)
			k := admitted(t, s, byTheClock(t, "a", 100, 7))
			empty(t, server)
			again := admitted(t, s, byTheClock(t, "a", 100, 9))
			if c := k.settle(t, s, 0)[0]; !c.Lost || c.Done {
				t.Errorf("it was settled: %+v", c)
			}
			if n := spent(t, s, k.charges[0]); n != 9 {
				t.Errorf("%d units are spent, want 9", n)
			}
			if c := again.changes(0); s.Settle(t.Context(), &again.receipt.Ticket, c) != nil || c[0].Done == c[0].Lost {
				t.Errorf("a take after it was settled to %+v", c[0])
			}
			eventually(t, "settlements count again", func() bool {
				k := admitted(t, s, byTheClock(t, "b", 1e6, 7))
				return k.settle(t, s, 0)[0].Done
			})
		})
	}
}

// Behind a proxy another server can take the place of the first one, on the same connection. Its
// history differs.
func TestNothingIsGivenBackToAnotherServerOnTheSameConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--enable-debug-command", "yes")
	s := open(t, at(server))
	k := admitted(t, s, byTheClock(t, "a", 1e6, 7))
	if c := k.settle(t, s, 8)[0]; !c.Done {
		t.Fatalf("it was settled: %+v", c)
	}
	server.Do(t, "DEBUG", "CHANGE-REPL-ID")
	eventually(t, "it is noticed", func() bool { return k.settle(t, s, 8)[0].Lost })
	eventually(t, "settlements count again", func() bool {
		k := admitted(t, s, byTheClock(t, "b", 1e6, 7))
		return k.settle(t, s, 0)[0].Done
	})
}

// If the connection to one machine of a cluster is replaced, the takes that the others have counted
// are settled all the same.
func TestANewConnectionVoidsOnlyTheSettlementsOfItsMachine(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	s := open(t, redisstore.Options{Addresses: cluster.Addrs()})
	of := make(map[*redistest.Server]taken)
	seen := make(map[string]bool)
	for i := 0; len(of) < 3; i++ {
		k := admitted(t, s, byTheClock(t, string(rune('a'+i)), 100, 7))
		for _, machine := range cluster.Nodes {
			for _, w := range counters(t, machine) {
				if !seen[w.name] {
					seen[w.name] = true
					of[machine] = k
				}
			}
		}
	}
	replaced := cluster.Nodes[1]
	replaced.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	eventually(t, "it is connected again", func() bool {
		var r weir.Receipt
		return s.Take(t.Context(), of[replaced].charges, &r) == nil
	})
	for machine, k := range of {
		c := k.changes(0)
		if err := s.Settle(t.Context(), &k.receipt.Ticket, c); err != nil || c[0].Lost != (machine == replaced) || c[0].Done == c[0].Lost {
			t.Errorf("replaced %v: settled to %+v, %v", machine == replaced, c[0], err)
		}
	}
}
