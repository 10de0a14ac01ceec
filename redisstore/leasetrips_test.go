package redisstore

import (
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
	load    float64   // offered in a window, in limits
	share   []float64 // of the nodes; those without one share the rest evenly
	nodes   int
	windows int
}

// trips runs a load for some windows of a minute. It returns the round trips for each request, and
// the part of the requests that were refused although no more than the limit was offered.
func (l *simLoad) trips(t *testing.T) (trips, short float64) {
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
			for range int(float64(l.limit) * l.load) {
				at, n := time.Duration(r.Int64N(int64(59*time.Second))), l.pick(r)
				requests.Go(func() {
					time.Sleep(at)
					w.nodes[n].take([]weir.Charge{{Key: []byte("caller"), Limit: l.limit, Per: 60, Cost: 1}})
				})
			}
			time.Sleep(70 * time.Second) // the window has ended
		}
		requests.Wait()
		s := w.store
		trips = float64(s.asks+s.returns) / float64(s.offered)
		t.Logf("%s: %d asks, %d returns, %d requests", l.name, s.asks, s.returns, s.offered)
		if l.load <= 1 {
			short = float64(s.refused) / float64(s.offered)
		}
		for _, text := range s.wrong {
			t.Errorf("%s: %s", l.name, text)
		}
		for _, n := range w.nodes {
			n.end()
		}
	})
	return trips, short
}

func (l *simLoad) pick(r *rand.Rand) int {
	x := r.Float64()
	for i, share := range l.share {
		if x -= share; x < 0 {
			return i
		}
	}
	return len(l.share) + r.IntN(l.nodes-len(l.share))
}

// Leases save round trips where a caller's requests go to one node, cost none where they do not,
// and refuse next to nothing of what the limit allows. docs/scale.md has the table that this logs.
func TestLeasesSaveTripsAndRefuseNearlyNothing(t *testing.T) {
	rows := ""
	for _, c := range []struct {
		simLoad
		most float64 // trips for each request
	}{
		{simLoad{"60 a minute, on one of 10 nodes", 60, 1, []float64{1}, 10, 40}, 1. / 3},
		{simLoad{"60 a minute, 90 % on one of 10 nodes", 60, 1, []float64{0.9}, 10, 40}, 1. / 2},
		{simLoad{"60 a minute, spread over 10 nodes", 60, 1, nil, 10, 40}, 1.001},
		{simLoad{"600 a minute, 90 % on one of 10 nodes", 600, 1, []float64{0.9}, 10, 10}, 1. / 3},
		{simLoad{"600 a minute, spread over 10 nodes", 600, 1, nil, 10, 10}, 1.001},
		{simLoad{"10,000 a minute, spread over 4 nodes", 10_000, 1, nil, 4, 4}, 1. / 3},
		{simLoad{"100,000 a minute, spread over 4 nodes", 100_000, 1, nil, 4, 1}, 1. / 20},
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
