package redis_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/child"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// slot returns a charge of one slot that is counted by who.
func slot(who string, limit int64) weir.Charge {
	c := charge(who, limit, 0, 1)
	c.Held = true
	return c
}

// end gives the slots of a take back.
func (k *taken) end(t testing.TB, s weir.Settler) {
	t.Helper()
	var all []weir.Change
	for i := range k.charges {
		if c := k.charges[i]; c.Held {
			all = append(all, weir.Change{Charge: c, Units: -c.Cost})
		}
	}
	if err := s.Settle(t.Context(), &k.receipt.Ticket, all); err != nil || !all[0].Done || all[0].Lost {
		t.Errorf("the slots were given back as %+v, %v", all, err)
	}
}

// Slots and windows are taken all or none: a request without a slot spends nothing, and one without
// budget holds nothing.
func TestSlotsAndWindowsAreTakenTogether(t *testing.T) {
	t.Parallel()
	for name, start := range kinds() {
		t.Run(name, func(t *testing.T) {
			o := start(t)
			a, b := open(t, o), open(t, o)
			hour, gate := charge("a", 4, 3600, 1), charge("a", 4, 7200, weir.Gate)
			first, second := admitted(t, a, hour, slot("a", 2), gate), admitted(t, b, hour, slot("a", 2), gate)
			if got := second.receipt.Used; got[0].Count != 2 || got[1] != (weir.Used{Count: 2}) || got[2] != (weir.Used{}) {
				t.Errorf("the second request has %+v", got)
			}
			for _, s := range []*redisstore.Store{a, b} {
				if r := take(t, s, hour, slot("a", 2), gate); r.Allowed || r.Used[0].Count != 2 || r.Used[1] != (weir.Used{Count: 2}) || r.Ticket != (weir.Ticket{}) {
					t.Errorf("the third was answered %+v", r)
				}
			}
			first.end(t, a)
			third := admitted(t, b, hour, slot("a", 2), gate)
			third.end(t, b)
			fourth := admitted(t, a, slot("a", 2), hour)
			fourth.end(t, a)
			if r := take(t, a, hour, slot("a", 2), gate); r.Allowed || r.Used[0].Count != 4 {
				t.Errorf("the fifth was answered %+v", r)
			}
			if n := spent(t, b, slot("a", 2)); n != 1 {
				t.Errorf("%d slots are held, want 1", n)
			}
			second.end(t, b)
			if n := spent(t, b, slot("a", 2)); n != 0 {
				t.Errorf("%d slots are held, want 0", n)
			}
		})
	}
}

// There is never one request too many under way, on any number of nodes, and slots that are given
// back are free.
func TestNoSlotTooMany(t *testing.T) {
	t.Parallel()
	for name, start := range kinds() {
		t.Run(name, func(t *testing.T) {
			const limit = 7
			o := start(t)
			nodes := []*redisstore.Store{open(t, o), open(t, o)}
			var under, served atomic.Int64
			var all sync.WaitGroup
			for i := range 60 {
				all.Go(func() {
					s := nodes[i%2]
					for range 15 {
						k := taken{charges: []weir.Charge{slot("a", limit), byTheClock(t, "a", 1e6, 3)}}
						if err := s.Take(context.Background(), k.charges, &k.receipt); err != nil {
							t.Error(err)
						}
						if !k.receipt.Allowed {
							continue
						}
						if n := under.Add(1); n > limit {
							t.Errorf("%d requests are under way", n)
						}
						served.Add(1)
						under.Add(-1)
						k.end(t, s)
					}
				})
			}
			all.Wait()
			if n := spent(t, nodes[0], byTheClock(t, "a", 1e6, 0)); n != 3*served.Load() || n < 3*limit {
				t.Errorf("%d units are spent by %d requests", n, served.Load())
			}
			for range limit {
				admitted(t, nodes[0], slot("a", limit))
			}
			if take(t, nodes[1], slot("a", limit)).Allowed {
				t.Error("one slot too many")
			}
		})
	}
}

// expiry returns the milliseconds until the last slot of a server expires.
func expiry(t testing.TB, server *redistest.Server) int64 {
	t.Helper()
	const script = `local t=redis.call('TIME')
		local k=redis.call('KEYS','weir:{*')
		local last=0
		for _,k in ipairs(k) do
			if redis.call('TYPE',k).ok=='zset' and not string.find(k,'trial') then last=redis.call('ZRANGE',k,-1,-1,'WITHSCORES')[2] or 0 end
		end
		return math.floor(last-(t[1]*1000+t[2]/1000))`
	m := server.Do(t, "EVAL", script, "0")
	left, err := m.AsInt64()
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// A node that is killed gives nothing back. Its slots expire within 10 seconds.
func TestTheSlotsOfAKilledNodeExpire(t *testing.T) {
	if address := os.Getenv("WEIR_TEST_HOLDS"); address != "" {
		s := open(t, redisstore.Options{Addresses: []string{address}})
		for range 10 {
			admitted(t, s, slot("a", 10))
		}
		select {} // until it is killed
	}
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, at(server))
	node := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	node.Env = append(os.Environ(), "WEIR_TEST_HOLDS="+server.Addr())
	p, err := child.Start(node, filepath.Join(t.TempDir(), "log"), syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	eventually(t, "the node holds every slot", func() bool { return spent(t, s, slot("a", 10)) == 10 })
	if take(t, s, slot("a", 10)).Allowed {
		t.Fatal("an eleventh request is admitted")
	}
	last := expiry(t, server)
	eventually(t, "the node renews its slots", func() bool {
		if n := spent(t, s, slot("a", 10)); n != 10 {
			t.Fatalf("the living node holds %d slots, want 10", n)
		}
		before := last
		last = expiry(t, server)
		return last > before
	})
	p.Kill()
	if left := expiry(t, server); left <= 0 || left > 8000 {
		t.Errorf("the slots of the killed node expire after %d ms, at most 8000 are allowed", left)
	}
	killed := time.Now()
	eventually(t, "the slots are free", func() bool { return take(t, s, slot("a", 10)).Allowed })
	t.Logf("free again after %v", time.Since(killed).Round(100*time.Millisecond))
}

// A node that is cut off for longer than a slot lasts takes its slots again, beyond the limit too:
// its requests are still under way. That is counted.
func TestACutOffNodeTakesItsSlotsAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, other := open(t, at(server)), open(t, at(server))
	held := admitted(t, s, slot("a", 1))
	server.Do(t, "FLUSHALL") // as after 8 seconds
	second := admitted(t, other, slot("a", 1))
	eventually(t, "it renews", func() bool { return s.Stats().Lapsed == 1 })
	if n := spent(t, other, slot("a", 1)); n != 2 {
		t.Errorf("%d slots are held, want 2", n)
	}
	held.end(t, s)
	if take(t, other, slot("a", 1)).Allowed {
		t.Error("the slot of the other request is free")
	}
	second.end(t, other)
	third := admitted(t, s, slot("a", 1))
	third.end(t, s)
	if n := other.Stats().Lapsed; n != 0 {
		t.Errorf("the other node has lost %d slots", n)
	}
}

// If a take is not answered, the slots that it may have taken are given back once the server
// answers again.
func TestTheSlotsOfAnUnansweredTakeAreFree(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s, direct := open(t, redisstore.Options{Addresses: []string{proxy.Addr()}}), open(t, at(server))
	proxy.Delay(300 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var r weir.Receipt
	if err := s.Take(ctx, []weir.Charge{slot("a", 1)}, &r); err == nil {
		t.Fatalf("it was answered %+v", r)
	}
	eventually(t, "the slot is free", func() bool { return spent(t, direct, slot("a", 1)) == 0 })
	if left := expiry(t, server); left > 0 {
		t.Errorf("it is still held for %d ms", left)
	}
}

// A request ends while a renewal of its slot is not answered, and does not wait for that. The slot
// is given back after the renewal, long before it would expire.
func TestAnEndDuringASlowRenewalGivesTheSlotBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s, direct := open(t, redisstore.Options{Addresses: []string{proxy.Addr()}}), open(t, at(server))
	k := admitted(t, s, slot("a", 1))
	calls := func() string { return server.Info(t, "commandstats")["cmdstat_zrem"] }
	before, last := calls(), expiry(t, server)
	proxy.Delay(500 * time.Millisecond) // the renewal arrives, and its answer is late
	eventually(t, "a renewal is under way", func() bool {
		was := last
		last = expiry(t, server)
		return last > was
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := []weir.Change{{Charge: k.charges[0], Units: -1}}
	if err := s.Settle(ctx, &k.receipt.Ticket, c); err == nil || !c[0].Lost {
		t.Errorf("before the renewal is answered: %+v, %v", c[0], err)
	}
	eventually(t, "the slot is given back", func() bool { return calls() != before })
	eventually(t, "the slot is free", func() bool { return spent(t, direct, slot("a", 1)) == 0 })
}

// Nothing of a slot stays on the server.
func TestSlotsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, at(server))
	k, forgotten := admitted(t, s, slot("a", 1)), admitted(t, s, slot("b", 1))
	k.end(t, s)
	keys, err := server.Try("KEYS", "weir:{*").AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if m := server.Do(t, "PTTL", key); !strings.Contains(key, "trial") {
			if left, err := m.AsInt64(); err != nil || left <= 0 || left > 16_000 {
				t.Errorf("%s expires in %s ms, %v", key, strconv.FormatInt(left, 10), err)
			}
		}
	}
	forgotten.end(t, s)
}
