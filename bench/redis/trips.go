package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/bench/page"
	"github.com/weirlimit/weir/internal/wait"
	"github.com/weirlimit/weir/redisstore"
)

// A tripLoad is requests of one caller through nodes that lease. As many are offered in each window
// as its limit allows. TestLeasesSaveTripsAndRefuseNearlyNothing of package redisstore has the same
// ones on simulated time.
type tripLoad struct {
	name  string
	limit int
	nodes int
	first float64 // of the requests, to the first node; the others share the rest evenly
	// skewed: node k has 1/k of the first one's, and in the second half of a window the reverse
	skewed bool
}

const tripsPer = time.Minute

// windows is how many windows are offered: more of few requests.
func (l *tripLoad) windows() int {
	if l.limit <= 1000 {
		return 10
	}
	return 3
}

func tripLoads() []tripLoad {
	return []tripLoad{
		{name: "60 a minute, on one of 10 nodes", limit: 60, nodes: 10, first: 1},
		{name: "60 a minute, 90 % on one of 10 nodes", limit: 60, nodes: 10, first: 0.9},
		{name: "60 a minute, spread over 10 nodes", limit: 60, nodes: 10},
		{name: "600 a minute, on one of 10 nodes", limit: 600, nodes: 10, first: 1},
		{name: "600 a minute, 90 % on one of 10 nodes", limit: 600, nodes: 10, first: 0.9},
		{name: "600 a minute, spread over 10 nodes", limit: 600, nodes: 10},
		{name: "1,000 a minute, spread over 10 nodes", limit: 1000, nodes: 10},
		{name: "10,000 a minute, spread over 4 nodes", limit: 10_000, nodes: 4},
		{name: "10,000 a minute, skewed over 10 nodes", limit: 10_000, nodes: 10, skewed: true},
		{name: "100,000 a minute, spread over 4 nodes", limit: 100_000, nodes: 4},
		{name: "100,000 a minute, skewed over 20 nodes", limit: 100_000, nodes: 20, skewed: true},
	}
}

// pick returns the node of a request.
func (l *tripLoad) pick(late bool) int {
	switch {
	case l.skewed:
		all := 0.0
		for k := range l.nodes {
			all += 1 / float64(k+1)
		}
		n, x := 0, rand.Float64()*all
		for x -= 1; x >= 0 && n < l.nodes-1; x -= 1 / float64(n+1) {
			n++
		}
		if late {
			n = l.nodes - 1 - n
		}
		return n
	case l.first == 0:
		return rand.IntN(l.nodes)
	case rand.Float64() < l.first:
		return 0
	}
	return 1 + rand.IntN(l.nodes-1)
}

// trips measures how many round trips leases cost a request, in real time: all loads at once.
func (p *plan) trips(ctx context.Context, r *results) error {
	var all sync.WaitGroup
	rows, failed := make([][]string, len(tripLoads())), make([]error, len(tripLoads()))
	p.say("round trips: some 10 minutes")
	for i, l := range tripLoads() {
		all.Go(func() { rows[i], failed[i] = p.tripsOf(ctx, &l, fmt.Sprint("trips", i)) })
	}
	all.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	r.tripRows = rows
	return nil
}

// tripsOf measures one load. A take that is sent is a round trip, and so are units that go back.
func (p *plan) tripsOf(ctx context.Context, l *tripLoad, prefix string) ([]string, error) {
	nodes := make([]*redisstore.Store, l.nodes)
	for i := range nodes {
		var err error
		if nodes[i], err = redisstore.New(ctx, redisstore.Options{Addresses: []string{p.server.address}, Prefix: prefix, Secret: secret, Leases: redisstore.LeasesAuto}); err != nil {
			return nil, err
		}
		defer nodes[i].Close()
		for !nodes[i].State().Ready {
			if err := wait.For(ctx, 10*time.Millisecond); err != nil {
				return nil, err
			}
		}
	}
	charge := weir.Charge{Key: []byte(scope + "caller"), Scope: len(scope), Subject: len(scope + "caller"), Limit: int64(l.limit), Per: int64(tripsPer / time.Second), Cost: 1}
	var refused, failed atomic.Int64
	var last atomic.Pointer[error]
	for range l.windows() {
		if err := l.window(ctx, nodes, charge, &refused, &failed, &last); err != nil {
			return nil, err
		}
	}
	if n := failed.Load(); n > 0 {
		return nil, fmt.Errorf("%s: %d takes failed: %w", l.name, n, *last.Load())
	}
	trips, requests := int64(0), float64(l.windows()*l.limit)
	for _, n := range nodes {
		s := n.Stats()
		trips += s.Asked + s.Leases.Returns
	}
	return []string{l.name, fmt.Sprintf("%.3f", float64(trips)/requests), fmt.Sprintf("%.3f %%", 100*float64(refused.Load())/requests)}, nil
}

// window offers what one window allows, and then waits until it has ended.
func (l *tripLoad) window(ctx context.Context, nodes []*redisstore.Store, charge weir.Charge, refused, failed *atomic.Int64, last *atomic.Pointer[error]) error {
	at := make([]time.Duration, l.limit)
	for i := range at {
		at[i] = rand.N(tripsPer - time.Second)
	}
	slices.Sort(at)
	begun := time.Now()
	var all sync.WaitGroup
	for _, at := range at {
		if err := until(ctx, begun.Add(at)); err != nil {
			return err
		}
		node := nodes[l.pick(at > tripsPer/2)]
		all.Go(func() {
			var r weir.Receipt
			if err := node.Take(ctx, []weir.Charge{charge}, &r); err != nil {
				failed.Add(1)
				last.Store(&err)
			} else if !r.Allowed {
				refused.Add(1)
			}
		})
	}
	all.Wait()
	return until(ctx, begun.Add(at[0]+tripsPer+2*time.Second))
}

func until(ctx context.Context, then time.Time) error { return wait.For(ctx, time.Until(then)) }

// tripsText returns the table with its machine.
func (r *results) tripsText() string {
	if len(r.tripRows) == 0 {
		return ""
	}
	t := table{head: []string{"", "round trips for each request", "refused of these"}, rows: r.tripRows}
	return strings.TrimSpace(fmt.Sprintf("%s.\n\n%s", r.machine, t))
}

// writeTrips writes the table to dir/scale.md, between its two comments.
func (r *results) writeTrips(dir string) error {
	return page.Fill(filepath.Join(dir, "scale.md"), "trips", r.tripsText())
}
