package redis_test

import (
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/storetest"
)

// The store passes the contract's tests on a real server of each kind. The test
// sets the server's clock.
func TestStore(t *testing.T) {
	for _, kind := range []struct {
		name  string
		start func(t *testing.T) (server *redistest.Server, o redisstore.Options, clock *redistest.Clock)
	}{
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
	} {
		t.Run(kind.name, func(t *testing.T) {
			server, o, clock := kind.start(t)
			storetest.Run(t, func(t *testing.T) (weir.Store, storetest.Clock) {
				server.Do(t, "FLUSHALL")
				o.Now = clock.Now
				s := open(t, o)
				if mode := s.State().Mode; mode != kind.name && !(mode == "server" && kind.name == "TLS") {
					t.Fatalf("its mode is %s", mode)
				}
				return s, clock
			})
		})
	}
}

// With leases, one process is as exact as without: whatever a take needs that the process holds
// goes back first. Some takes are served without the server.
func TestAStoreThatLeasesIsExactForOneProcess(t *testing.T) {
	server, clock := redistest.StartWithClock(t)
	served := int64(0)
	storetest.Run(t, func(t *testing.T) (weir.Store, storetest.Clock) {
		server.Do(t, "FLUSHALL")
		s := open(t, redisstore.Options{Addresses: []string{server.Addr()}, Now: clock.Now, Leases: redisstore.LeasesAuto})
		t.Cleanup(func() { served += s.Stats().Leases.Takes })
		return s, clock
	})
	if served == 0 {
		t.Error("no take was served from leased units")
	}
}
