package redis_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// Two nodes that lease take under random schedules, with settlements, while windows end.
// No window admits more than its limit. When both nodes have closed, the server counts exactly
// what was admitted.
func TestTwoNodesThatLeaseBalanceToTheUnit(t *testing.T) {
	t.Parallel()
	server, clock := redistest.StartWithClock(t)
	o := redisstore.Options{Addresses: []string{server.Addr()}, Now: clock.Now}
	serial, leased := 0, int64(0)
	rapid.Check(t, func(rt *rapid.T) {
		serial++
		s := &schedule{T: rt, prefix: fmt.Sprint(serial), clock: clock, limit: rapid.Int64Range(1, 60).Draw(rt, "limit")}
		for i := range s.nodes {
			o.Leases = rapid.SampledFrom([]redisstore.Leasing{redisstore.LeasesEager, redisstore.LeasesEager, redisstore.LeasesAuto, redisstore.LeasesOff}).Draw(rt, "leases")
			node, err := redisstore.New(t.Context(), o)
			if err != nil {
				rt.Fatal(err)
			}
			defer node.Close()
			eventually(t, "the node is ready", func() bool { return node.State().Ready })
			s.nodes[i] = node
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			s.step()
		}
		for _, node := range s.nodes {
			if err := node.Close(); err != nil {
				rt.Fatal(err)
			}
			leased += node.Stats().Leases.Takes
		}
		reader, err := redisstore.New(t.Context(), redisstore.Options{Addresses: o.Addresses, Now: clock.Now})
		if err != nil {
			rt.Fatal(err)
		}
		defer reader.Close()
		for _, w := range s.windows() {
			now := clock.Now().Unix()
			if got, want := take(t, reader, w).Used[0], s.standing(w, now); got != want {
				rt.Errorf("window %q is %+v after the nodes have closed, their takes made it %+v", w.Key, got, want)
			}
		}
	})
	if leased == 0 {
		t.Error("no take was served from leased units")
	}
}

// A schedule is what two nodes did.
type schedule struct {
	*rapid.T
	nodes  [2]*redisstore.Store
	prefix string
	clock  *redistest.Clock
	limit  int64
	spent  map[string]map[int64]int64 // by key and reset, what was admitted
	open   []nodeTake                 // allowed, and not settled
}

type nodeTake struct {
	node int
	taken
}

// windows are a short and a long one of two callers, read.
func (s *schedule) windows() (all []weir.Charge) {
	for _, who := range []string{"a", "b"} {
		all = append(all, charge(s.prefix+who, s.limit, 20, 0), charge(s.prefix+who, 2*s.limit, 3600, 0))
	}
	return all
}

func (s *schedule) step() {
	node := rapid.IntRange(0, 1).Draw(s.T, "node")
	switch what := rapid.IntRange(0, 19).Draw(s.T, "step"); {
	case what == 0:
		s.clock.Advance(time.Duration(rapid.IntRange(1, 25_000).Draw(s.T, "milliseconds")) * time.Millisecond)
	case what <= 3 && len(s.open) > 0:
		i := rapid.IntRange(0, len(s.open)-1).Draw(s.T, "settle")
		k := s.open[i]
		s.open = append(s.open[:i], s.open[i+1:]...)
		s.settle(k)
	default:
		windows := s.windows()[2*rapid.IntRange(0, 1).Draw(s.T, "who"):][:2]
		if one := rapid.IntRange(0, 3).Draw(s.T, "which"); one < 2 {
			windows = windows[one : one+1]
		}
		for i := range windows {
			windows[i].Cost = rapid.Int64Range(1, 4).Draw(s.T, "cost")
		}
		s.take(node, windows)
	}
}

func (s *schedule) take(node int, charges []weir.Charge) {
	k := nodeTake{node, taken{charges: charges}}
	r := &k.receipt
	if err := s.nodes[node].Take(s.Context(), charges, r); err != nil {
		s.Fatal(err)
	}
	if !r.Allowed {
		return
	}
	for i, c := range charges {
		if spent := s.add(c, r.Used[i].Reset, c.Cost); spent > c.Limit {
			s.Fatalf("%d units of %d were admitted in the window of %q until %d", spent, c.Limit, c.Key, r.Used[i].Reset)
		}
	}
	s.open = append(s.open, k)
}

// settle gives some units back.
func (s *schedule) settle(k nodeTake) {
	changes := make([]weir.Change, len(k.charges))
	for i, c := range k.charges {
		changes[i] = weir.Change{Charge: c, Reset: k.receipt.Used[i].Reset, Units: -rapid.Int64Range(0, c.Cost).Draw(s.T, "back")}
	}
	if err := s.nodes[k.node].Settle(s.Context(), &k.receipt.Ticket, changes); err != nil {
		s.Fatal(err)
	}
	for _, c := range changes {
		switch {
		case c.Done:
			s.add(c.Charge, c.Reset, c.Units)
		case c.Lost || c.Units != 0 && c.Reset > s.clock.Now().Unix():
			s.Fatalf("a change of an open window is %+v", c)
		}
	}
}

// add records units of a window, and returns how many it has then.
func (s *schedule) add(c weir.Charge, reset, units int64) int64 {
	if s.spent == nil {
		s.spent = make(map[string]map[int64]int64)
	}
	if s.spent[string(c.Key)] == nil {
		s.spent[string(c.Key)] = make(map[int64]int64)
	}
	s.spent[string(c.Key)][reset] += units
	return s.spent[string(c.Key)][reset]
}

// standing returns the window as the takes made it.
func (s *schedule) standing(c weir.Charge, now int64) weir.Used {
	for reset, units := range s.spent[string(c.Key)] {
		if reset > now {
			return weir.Used{Count: units, Reset: reset}
		}
	}
	return weir.Used{}
}
