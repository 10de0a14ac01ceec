//go:build !race

// Hundreds of thousands of goroutines, of which one runs at a time: with the race detector they
// take eight times as long. leasesim_test.go has the same nodes with it.

package redisstore

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// A simLoad is requests of one caller, of cost 1, whose nodes are drawn for each.
type simLoad struct {
	name    string
	limit   int64
	share   []float64 // of the nodes; those without one share the rest evenly
	nodes   int
	windows int
	per     time.Duration // of a window; 0: a minute
	// skewed: node k has 1/k of the first one's, and in the second half of a window the reverse
	skewed bool
}

// trips runs a load for some windows. It returns the round trips for each request, and
// the part of the requests that were refused although no more than the limit was offered.
func (l *simLoad) trips(t *testing.T) (trips, short float64) {
	per := cmp.Or(l.per, time.Minute)
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 1))
		w := &simWorld{store: &simStore{fault: simSound, keys: make(map[string]*simKey)}, how: LeasesAuto}
		for i := range uint64(l.nodes) {
			n := &simNode{store: w.store, index: i, start: time.Now(), delay: time.Millisecond}
			n.boot(w.how)
			w.nodes = append(w.nodes, n)
		}
		var requests sync.WaitGroup
		for range l.windows {
			for range l.limit {
				at := time.Duration(r.Int64N(int64(per - time.Second)))
				n := l.pick(r, at > per/2)
				requests.Go(func() {
					time.Sleep(at)
					w.nodes[n].take([]weir.Charge{{Key: []byte("caller"), Limit: l.limit, Per: int64(per / time.Second), Cost: 1}})
				})
			}
			time.Sleep(per + 10*time.Second) // the window has ended
		}
		requests.Wait()
		s := w.store
		s.mu.Lock() // a node may just be giving units back
		trips = float64(s.asks+s.returns) / float64(s.offered)
		t.Logf("%s: %d asks, %d returns, %d requests", l.name, s.asks, s.returns, s.offered)
		short = float64(s.refused) / float64(s.offered)
		for _, text := range s.wrong {
			t.Errorf("%s: %s", l.name, text)
		}
		s.mu.Unlock()
		for _, n := range w.nodes {
			n.end()
		}
	})
	return trips, short
}

func (l *simLoad) pick(r *rand.Rand, late bool) int {
	x := r.Float64()
	if l.skewed {
		return l.pickSkewed(x, late)
	}
	for i, share := range l.share {
		if x -= share; x < 0 {
			return i
		}
	}
	return len(l.share) + r.IntN(l.nodes-len(l.share))
}

func (l *simLoad) pickSkewed(x float64, late bool) int {
	all := 0.0
	for k := range l.nodes {
		all += 1 / float64(k+1)
	}
	n := 0
	for x -= 1 / all; x >= 0 && n < l.nodes-1; x -= 1 / float64(n+1) / all {
		n++
	}
	if late {
		return l.nodes - 1 - n
	}
	return n
}

// Leases save round trips where a caller's requests go to one node, cost none where they do not,
// and refuse next to nothing of what the limit allows. docs/scale.md has the table that this logs.
func TestLeasesSaveTripsAndRefuseNearlyNothing(t *testing.T) {
	rows := ""
	for _, c := range []struct {
		simLoad
		most float64 // trips for each request
	}{
		{simLoad{name: "60 a minute, on one of 10 nodes", limit: 60, share: []float64{1}, nodes: 10, windows: 40}, 1. / 3},
		{simLoad{name: "60 a minute, 90 % on one of 10 nodes", limit: 60, share: []float64{0.9}, nodes: 10, windows: 40}, 1. / 3},
		{simLoad{name: "60 a minute, spread over 10 nodes", limit: 60, nodes: 10, windows: 40}, 1.001},
		{simLoad{name: "600 a minute, on one of 10 nodes", limit: 600, share: []float64{1}, nodes: 10, windows: 10}, 1. / 3},
		{simLoad{name: "600 a minute, 90 % on one of 10 nodes", limit: 600, share: []float64{0.9}, nodes: 10, windows: 10}, 1. / 3},
		{simLoad{name: "600 a minute, spread over 10 nodes", limit: 600, nodes: 10, windows: 10}, 1.001},
		{simLoad{name: "1,000 a minute, spread over 10 nodes", limit: 1000, nodes: 10, windows: 10}, 1.001},
		{simLoad{name: "10,000 a minute, spread over 4 nodes", limit: 10_000, nodes: 4, windows: 4}, 1. / 3},
		{simLoad{name: "10,000 a minute, skewed over 10 nodes", limit: 10_000, nodes: 10, windows: 4, skewed: true}, 1. / 3},
		{simLoad{name: "30,000 an hour, skewed over 10 nodes", limit: 30_000, nodes: 10, windows: 1, per: time.Hour, skewed: true}, 1. / 3},
		{simLoad{name: "100,000 a minute, spread over 4 nodes", limit: 100_000, nodes: 4, windows: 1}, 1. / 20},
		{simLoad{name: "100,000 a minute, skewed over 20 nodes", limit: 100_000, nodes: 20, windows: 1, skewed: true}, 1. / 3},
	} {
		trips, short := c.trips(t)
		rows += fmt.Sprintf("\n| %s | %.3f | %.3f %% |", c.name, trips, 100*short)
		if trips > c.most {
			t.Errorf("%s: %.3f round trips for each request, at most %.3f are expected", c.name, trips, c.most)
		}
		if short > 0.001 {
			t.Errorf("%s: %.2f %% were refused although no more than the limit was offered", c.name, 100*short)
		}
	}
	t.Log(rows)
}
