package redis_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// withReplicas opens a store that waits for both replicas of a master.
func withReplicas(t *testing.T) (s *redisstore.Store, master *redistest.Server, replicas []*redistest.Server) {
	t.Helper()
	master = redistest.Start(t, "--repl-diskless-sync-delay", "0")
	_, port, _ := strings.Cut(master.Addr(), ":")
	for range 2 {
		replicas = append(replicas, redistest.Start(t, "--replicaof", "127.0.0.1", port))
	}
	o := redisstore.Options{Addresses: []string{master.Addr()}, Replicas: 2}
	followedAtOnce(t, o)
	return open(t, o), master, replicas
}

// followedAtOnce waits until replicas have what is written at once: one that has just
// connected may receive nothing for up to a second.
func followedAtOnce(t testing.TB, o redisstore.Options) {
	t.Helper()
	o.Prefix = "before" // no window of the test
	s := open(t, o)
	eventually(t, "a take is answered", func() bool {
		var r weir.Receipt
		return s.Take(t.Context(), []weir.Charge{charge("a", 1e6, 3600, 1)}, &r) == nil
	})
}

// A take that waits for two replicas is answered when both have it, so each of them
// has what was admitted, although nobody gives it anything again.
func TestReplicasHaveWhatWasAdmitted(t *testing.T) {
	t.Parallel()
	s, master, replicas := withReplicas(t)
	const callers, each = 16, 50
	c := charge("a", 1e6, 3600, 1)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				var r weir.Receipt
				if err := s.Take(t.Context(), []weir.Charge{c}, &r); err != nil || !r.Allowed {
					t.Errorf("a take: %+v, %v", r, err)
				}
			}
		})
	}
	all.Wait()
	master.Kill()
	for _, r := range replicas {
		if w := one(t, r); w.count != callers*each {
			t.Errorf("a replica has %d units of the %d that were admitted", w.count, callers*each)
		}
	}
}

// The takes that are answered meanwhile share one WAIT.
func TestTakesShareAWait(t *testing.T) {
	t.Parallel()
	s, master, replicas := withReplicas(t)
	c := charge("a", 1e6, 3600, 1)
	take(t, s, c)
	before := master.Calls(t, "wait")
	replicas[0].Pause(t) // so that the first WAIT lasts until all others have come
	const takes = 100
	done := make(chan error, takes)
	for range takes {
		go func() {
			var r weir.Receipt
			done <- s.Take(t.Context(), []weir.Charge{c}, &r)
		}()
	}
	eventually(t, "all are counted", func() bool { return one(t, master).count == 1+takes })
	replicas[0].Resume(t)
	for range takes {
		<-done // the first ones may have waited too long
	}
	if n := master.Calls(t, "wait") - before; n > takes/10 {
		t.Errorf("%d takes at once caused %d WAITs", takes, n)
	}
}

// If too few replicas have a take, it fails, and stays spent. When they are back,
// takes go on by themselves.
func TestATakeFailsWithoutItsReplicas(t *testing.T) {
	t.Parallel()
	s, _, replicas := withReplicas(t)
	c := charge("a", 10, 3600, 1)
	take(t, s, c)
	replicas[1].Pause(t) // it gets what is written, and does not say so
	var r weir.Receipt
	err := s.Take(t.Context(), []weir.Charge{c}, &r)
	if want := "2 are asked for, and 1 had it after 200ms"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("with one replica of two: %v, want %q", err, want)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Take(ctx, []weir.Charge{c}, &r); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller that does not wait that long: %v", err)
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Error("the store is well, although takes fail")
	}
	replicas[1].Resume(t)
	eventually(t, "takes go on", func() bool { return s.Take(t.Context(), []weir.Charge{c}, &r) == nil })
	if r.Used[0].Count < 3 { // the caller that did not wait may have left before its take was sent
		t.Errorf("%d units are spent, at least 3 were counted", r.Used[0].Count)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("the store is not well: %v", err)
	}
}

// Slots that a take has got before it failed are given back.
func TestATakeThatFailsHoldsNoSlot(t *testing.T) {
	t.Parallel()
	s, _, replicas := withReplicas(t)
	c := slot("a", 1)
	replicas[1].Pause(t)
	var r weir.Receipt
	if err := s.Take(t.Context(), []weir.Charge{c}, &r); err == nil {
		t.Fatal("a take did not wait for its replicas")
	}
	replicas[1].Resume(t)
	eventually(t, "the only slot is free", func() bool {
		return s.Take(t.Context(), []weir.Charge{c}, &r) == nil && r.Allowed
	})
}

// Sentinels replace the master: takes wait for the replicas of the new one.
func TestReplicasOfTheNewMaster(t *testing.T) {
	t.Parallel()
	sentinels := redistest.StartSentinel(t)
	o := redisstore.Options{Addresses: sentinels.Addrs(), Master: redistest.MasterName, Replicas: 1}
	followedAtOnce(t, o)
	s := open(t, o)
	c := charge("a", 1e6, 3600, 1)
	take(t, s, c)
	master := sentinels.Failover(t)
	var r weir.Receipt
	eventually(t, "takes go on", func() bool { return s.Take(t.Context(), []weir.Charge{c}, &r) == nil })
	eventually(t, "the new master counts", func() bool {
		before := one(t, master).count
		return s.Take(t.Context(), []weir.Charge{c}, &r) == nil && one(t, master).count > before
	})
	if master.Calls(t, "wait") == 0 {
		t.Error("nobody waits for the new master's replicas")
	}
}

// Units that are leased are given out without the server, so nothing could wait.
func TestLeasesDoNotWaitForReplicas(t *testing.T) {
	_, err := redisstore.New(t.Context(), redisstore.Options{Addresses: []string{"127.0.0.1:1"}, Replicas: 1, Leases: redisstore.LeasesAuto})
	if err == nil || !strings.Contains(err.Error(), "one of the two must be off") {
		t.Errorf("got %v", err)
	}
}

// Takes in a cluster cannot wait for replicas: the store says so at once.
func TestAClusterHasNoReplicasToWaitFor(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	_, err := redisstore.New(t.Context(), redisstore.Options{Addresses: cluster.Addrs(), Replicas: 1})
	if !errors.Is(err, redisstore.ErrServer) || !strings.Contains(err.Error(), "cannot wait for replicas") {
		t.Errorf("got %v", err)
	}
}
