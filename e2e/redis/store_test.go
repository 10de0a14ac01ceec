package redis_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/storetest"
)

// clockedKinds are servers of each kind whose clock the test sets.
func clockedKinds() []clockedKind {
	return []clockedKind{
		{"server", func(t *testing.T) (*redistest.Server, redisstore.Options, *redistest.Clock) {
			server, clock := redistest.StartWithClock(t)
			return server, redisstore.Options{Addresses: []string{server.Addr()}}, clock
		}},
		{"TLS", func(t *testing.T) (*redistest.Server, redisstore.Options, *redistest.Clock) {
			server, clock := redistest.StartTLSWithClock(t)
			return server, redisstore.Options{Addresses: []string{server.Addr()}, TLS: server.TLS}, clock
		}},
		{"cluster", func(t *testing.T) (*redistest.Server, redisstore.Options, *redistest.Clock) {
			server, clock := redistest.StartClusterWithClock(t)
			return server, redisstore.Options{Addresses: []string{server.Addr()}}, clock
		}},
		{"sentinel", func(t *testing.T) (*redistest.Server, redisstore.Options, *redistest.Clock) {
			master, sentinel, clock := redistest.StartSentinelWithClock(t)
			return master, redisstore.Options{Addresses: []string{sentinel.Addr()}, Master: redistest.MasterName}, clock
		}},
	}
}

type clockedKind struct {
	name  string
	start func(t *testing.T) (server *redistest.Server, o redisstore.Options, clock *redistest.Clock)
}

// empty starts a server, and returns a function that opens a store on it after it was emptied.
func (k clockedKind) empty(t *testing.T, how redisstore.Leasing) func(t *testing.T) (*redisstore.Store, storetest.Clock) {
	t.Helper()
	server, o, clock := k.start(t)
	o.Now, o.Leases = clock.Now, how
	return func(t *testing.T) (*redisstore.Store, storetest.Clock) {
		server.Do(t, "FLUSHALL")
		s := open(t, o)
		if mode := s.State().Mode; mode != k.name && !(mode == "server" && k.name == "TLS") {
			t.Fatalf("its mode is %s", mode)
		}
		return s, clock
	}
}

// The store passes the contract's tests on a real server of each kind. The test
// sets the server's clock. What takes long runs once on one server.
func TestStore(t *testing.T) {
	for _, kind := range clockedKinds() {
		t.Run(kind.name, func(t *testing.T) {
			empty := kind.empty(t, redisstore.LeasesOff)
			var without []string
			if kind.name == "TLS" || kind.name == "sentinel" { // as a server, behind it
				without = []string{manyKeys, whileGrows, settlements}
			}
			storetest.RunExcept(t, func(t *testing.T) (weir.Store, storetest.Clock) { return empty(t) }, without...)
		})
	}
}

const (
	manyKeys   = "thousands of keys at once are exact while windows end"
	whileGrows = "concurrent takes are linearizable while the store grows"
	together   = "windows are reset together or not"

	settlements = "concurrent takes, settlements and resets are linearizable"
)

// With leases, one process is as exact as without: whatever a take needs that the process holds
// goes back first. Some takes are served without the server.
//
// Left out is the test that compares a window's opening with the time of the take that opened it,
// which can be later with leases. On all kinds but one, what takes long is left out too.
func TestAStoreThatLeasesIsExactForOneProcess(t *testing.T) {
	for _, kind := range clockedKinds() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			without := []string{manyKeys}
			if kind.name != "server" {
				without = append(without, whileGrows, together)
			}
			if kind.name == "TLS" || kind.name == "sentinel" { // as a server, behind it
				without = append(without, settlements)
			}
			kind.leases(t, redisstore.LeasesAuto, without...)
		})
	}
}

// If nearly every take leases, no take is refused or admitted wrongly either.
func TestAStoreThatLeasesEagerlyIsExactForOneProcess(t *testing.T) {
	for _, kind := range clockedKinds() {
		if kind.name == "TLS" || kind.name == "sentinel" { // as a server, behind it
			continue
		}
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			kind.leases(t, redisstore.LeasesEager,
				manyKeys, together,
				// units stay spent if the clock is set back
				"a clock that was set back keeps the count",
				"a clock that was set back keeps the count of a window by the clock",
				// or set by so much that the server's marker expires, as if it had lost its counts
				"random takes of windows by the clock follow the arithmetic",
				// a take that opens a window can have a later time than the opening
				whileGrows,
				"concurrent takes are linearizable",
				"concurrent takes of windows by the clock are linearizable")
		})
	}
}

// A stillStore is a store whose takes end before its stillClock moves. On a cluster, a process
// knows the time of a window from answers about that window: if the clock moved while one was under
// way, units show an earlier time than another window's answer did.
type stillStore struct {
	*redisstore.Store
	still *sync.RWMutex
}

func (s stillStore) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	s.still.RLock()
	defer s.still.RUnlock()
	return s.Store.Take(ctx, charges, r)
}

type stillClock struct {
	storetest.Clock
	still *sync.RWMutex
}

func (c stillClock) Advance(d time.Duration) {
	c.still.Lock()
	defer c.still.Unlock()
	c.Clock.Advance(d)
}

// leases runs the contract's tests with leases.
func (k clockedKind) leases(t *testing.T, how redisstore.Leasing, without ...string) {
	t.Helper()
	served, empty := int64(0), k.empty(t, how)
	storetest.RunExcept(t, func(t *testing.T) (weir.Store, storetest.Clock) {
		s, clock := empty(t)
		t.Cleanup(func() { served += s.Stats().Leases.Takes })
		if k.name == "cluster" {
			still := new(sync.RWMutex)
			return stillStore{s, still}, stillClock{clock, still}
		}
		return s, clock
	}, without...)
	if served == 0 {
		t.Error("no take was served from leased units")
	}
}

// The mark of a reset outlives the window that was reset if units of the next one are leased: their
// node gives all of them out.
func TestUnitsOutliveTheWindowThatWasResetBeforeThem(t *testing.T) {
	const limit, per = 10, 60
	for _, kind := range clockedKinds() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s, clock := kind.empty(t, redisstore.LeasesEager)(t)
			c := charge("a", limit, per, 1)
			take(t, s, c)
			clock.Advance(per / 2 * time.Second)
			reset(t, s, c)
			take(t, s, c)
			clock.Advance(per * 3 / 4 * time.Second) // the window before has ended
			asked := c
			asked.Exact = true // of the server
			take(t, s, asked)
			admitted := 2
			for take(t, s, c).Allowed {
				admitted++
			}
			if stranded := s.Stats().Leases.Stranded; admitted != limit || stranded != 7 {
				t.Errorf("%d of %d were admitted, and %d units are stranded, want the 7 of the window that was reset", admitted, limit, stranded)
			}
		})
	}
}

// After the clock was set back, the window has another reset, and units that were leased before are
// not its units any more: they stay spent until that reset, at most what the process held. Nothing
// more is lost, and nothing is admitted twice.
func TestWhatLeasesChangeForOneProcess(t *testing.T) {
	const limit, held = 10, 7
	for _, kind := range clockedKinds() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			for name, c := range map[string]weir.Charge{"one length": charge("a", limit, 3600, 1), "by the clock": byTheClock(t, "b", limit, 1)} {
				s, clock := kind.empty(t, redisstore.LeasesEager)(t)
				if r := take(t, s, c); !r.Allowed || r.Used[0].Count != 1 {
					t.Fatalf("%s: the first take is %+v", name, r)
				}
				clock.Advance(-24 * time.Hour)
				admitted := 1
				var r weir.Receipt
				for r = take(t, s, c); r.Allowed; r = take(t, s, c) {
					admitted++
				}
				if stranded := s.Stats().Leases.Stranded; admitted != limit-held || stranded != held || r.Used[0].Count != limit {
					t.Errorf("%s: %d of %d were admitted, the count is %d, and %d units are stranded, want %d", name, admitted, limit, r.Used[0].Count, stranded, held)
				}
				clock.Advance(time.Duration(r.Used[0].Reset-r.Now) * time.Second)
				for admitted = 0; take(t, s, c).Allowed; {
					admitted++
				}
				if admitted != limit {
					t.Errorf("%s: after the reset %d of %d were admitted", name, admitted, limit)
				}
			}
		})
	}
}
