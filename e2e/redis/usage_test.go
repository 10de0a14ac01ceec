package redis_test

import (
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/redisstore"
)

// Of all nodes that share a store, one reports each percentage, and a caller's usage
// is the same on each. The limiters count by sources that a cluster keeps on different
// machines, so no take could read all windows at once.
func TestNodesReportEachPercentageOnceAndShowOneUsage(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	var p weir.Policy
	for name, spelled := range map[string]string{"api": "200 per day by ip", "keyed": "300 per day by header:X-Api-Key", "all": "400 per day by everyone"} {
		w, err := weir.ParseWindow(spelled)
		if err != nil {
			t.Fatal(err)
		}
		p.Limiters = append(p.Limiters, weir.Limiter{Name: name, Windows: []weir.Window{w}, Notify: []int64{1, 50, 75, 90, 100}})
	}
	resolver, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	caller := func() *identity.Caller {
		c := new(identity.Caller)
		resolver.Start(c, &identity.HTTPRequest{Request: &http.Request{RemoteAddr: "192.0.2.1:1", Header: http.Header{"X-Api-Key": {"k"}}}})
		return c
	}
	var mu sync.Mutex
	reported, nodes := map[string]int{}, []*weir.Decider(nil)
	for range 2 {
		d, err := weir.New(p, open(t, redisstore.Options{Addresses: cluster.Addrs()}), weir.Options{OnCrossed: func(c weir.Crossed) {
			mu.Lock()
			defer mu.Unlock()
			reported[fmt.Sprintf("%s %d%% at %d", c.Standing.Limiter.Name, c.Percent, c.Standing.Count)]++
		}})
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, d)
	}
	var senders sync.WaitGroup
	for i := range 8 {
		senders.Go(func() {
			for range 40 { // 320 in all: more than 200
				if _, err := nodes[i%2].Decide(t.Context(), weir.Request{Limiters: []string{"api"}, Keys: caller()}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	senders.Wait()
	if want := map[string]int{"api 1% at 2": 1, "api 50% at 100": 1, "api 75% at 150": 1, "api 90% at 180": 1, "api 100% at 200": 1}; !maps.Equal(reported, want) {
		t.Errorf("reported %v, want %v", reported, want)
	}
	for i, d := range nodes {
		got := map[string]int64{}
		for _, w := range d.Usage(t.Context(), caller(), nil).Windows {
			if got[w.Limiter.Name] = w.Count; w.Unknown || w.Local || w.Missing != "" {
				t.Errorf("node %d: %+v", i, w)
			}
		}
		if want := map[string]int64{"api": 200, "keyed": 0, "all": 0}; !maps.Equal(got, want) {
			t.Errorf("node %d shows %v, want %v", i, got, want)
		}
	}
}
