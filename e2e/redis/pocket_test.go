package redis_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/redisstore"
)

// A holder is a node that leases 7 units with each take, of a limit of 10.
type holder struct {
	*testing.T
	store *redisstore.Store
	over  *failover.Store // around store
}

func newHolder(t *testing.T, o redisstore.Options, d time.Duration) *holder {
	t.Helper()
	s := leasing(t, o)
	return &holder{t, s, bridge(t, s, s, failover.Options{Deadline: d})}
}

// take takes a unit of each window.
func (h *holder) take(mode weir.FailureMode, windows ...weir.Charge) weir.Receipt {
	h.Helper()
	for i := range windows {
		windows[i].OnFailure = mode
	}
	var r weir.Receipt
	if err := h.over.Take(h.Context(), windows, &r); err != nil {
		h.Fatal(err)
	}
	return r
}

func ten() weir.Charge { return charge("a", 10, 3600, 1) }

// outcomes returns how many of 30 takes were allowed, by outcome.
func (h *holder) outcomes(mode weir.FailureMode) (counted, locally, uncounted int) {
	h.Helper()
	for range 30 {
		r := h.take(mode, ten())
		switch {
		case !r.Allowed:
		case r.Outcome == weir.CountedLocally:
			locally++
		case r.Outcome == weir.AllowedUncounted:
			uncounted++
		default:
			counted++
			if !r.Leased || r.Used[0].Count < 2 || r.Used[0].Count > 8 {
				h.Errorf("a take from what was leased is %+v", r)
			}
		}
	}
	return counted, locally, uncounted
}

// While the store does not answer, what is leased is given out if the limiter declares it. Then the
// limiter does what else it declares, from a count that has the leased units.
func TestAnOutageSpendsWhatWasLeased(t *testing.T) {
	t.Parallel()
	type allowed struct{ counted, locally, uncounted int }
	for name, fault := range map[string]struct {
		begin    func(testing.TB, *redistest.Server)
		deadline time.Duration
	}{
		"killed":    {func(_ testing.TB, s *redistest.Server) { s.Kill() }, lenient},
		"suspended": {func(t testing.TB, s *redistest.Server) { s.Pause(t); t.Cleanup(func() { s.Resume(t) }) }, 4 * deadline},
	} {
		for mode, want := range map[weir.FailureMode]allowed{
			weir.FailPocket | weir.FailDeny:  {7, 0, 0},
			weir.FailPocket:                  {7, 2, 0},
			weir.FailPocket | weir.FailAllow: {7, 0, 23},
		} {
			t.Run(name+", "+mode.String(), func(t *testing.T) {
				server := redistest.Start(t)
				h := newHolder(t, redisstore.Options{Addresses: []string{server.Addr()}}, fault.deadline)
				if r := h.take(mode, ten()); !r.Allowed || r.Leased || r.Used[0].Count != 1 {
					t.Fatalf("the first take is %+v", r)
				}
				fault.begin(t, server)
				var got allowed
				if got.counted, got.locally, got.uncounted = h.outcomes(mode); got != want {
					t.Errorf("of 30 takes in the outage %+v were allowed, want %+v", got, want)
				}
			})
		}
	}
}

// A limiter that does not declare it spends nothing of what is leased while the connection is gone,
// and counts it as spent.
func TestAnOutageLeavesWhatWasLeasedAlone(t *testing.T) {
	t.Parallel()
	for mode, want := range map[weir.FailureMode]int{weir.FailDeny: 0, weir.FailLocal: 2} {
		t.Run(mode.String(), func(t *testing.T) {
			server := redistest.Start(t)
			h := newHolder(t, redisstore.Options{Addresses: []string{server.Addr()}}, lenient)
			h.take(mode, ten())
			server.Kill()
			eventually(t, "the outage is noticed", func() bool {
				r := h.take(mode, charge("another", 10, 3600, 0))
				return r.Outcome != weir.Counted
			})
			if counted, locally, _ := h.outcomes(mode); counted != 0 || locally != want {
				t.Errorf("%d takes were served from what was leased and %d counted here, want 0 and %d", counted, locally, want)
			}
		})
	}
}

// A take is served from what is leased only if all its limiters declare it.
func TestOneLimiterKeepsATakeFromWhatWasLeased(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	h := newHolder(t, redisstore.Options{Addresses: []string{server.Addr()}}, lenient)
	hour, day := ten(), charge("a", 10, 86400, 1)
	hour.OnFailure, day.OnFailure = weir.FailPocket|weir.FailDeny, weir.FailDeny
	var r weir.Receipt
	for i := range 4 {
		if i == 1 {
			server.Kill()
			eventually(t, "the outage is noticed", func() bool {
				return h.take(weir.FailDeny, charge("another", 10, 3600, 0)).Outcome != weir.Counted
			})
		}
		if err := h.over.Take(t.Context(), []weir.Charge{hour, day}, &r); err != nil || r.Allowed != (i == 0) {
			t.Errorf("take %d: %+v, %v", i, r, err)
		}
	}
}

// Once a server has answered that may be another, what was leased of the one before is gone: that
// one may count it, and this one does not.
func TestWhatWasLeasedIsNotSpentAtAnotherServer(t *testing.T) {
	t.Parallel()
	const mode = weir.FailPocket | weir.FailDeny
	for name, persists := range map[string]bool{"without its counts": false, "with its counts": true} {
		t.Run(name, func(t *testing.T) {
			var args []string
			before := int64(0)
			if persists {
				args, before = []string{"--appendonly", "yes", "--appendfsync", "always"}, 8
			}
			server := redistest.Start(t, args...)
			h := newHolder(t, redisstore.Options{Addresses: []string{server.Addr()}}, lenient)
			h.take(mode, ten())
			server.Kill()
			for i := range 3 {
				if r := h.take(mode, ten()); !r.Allowed || !r.Leased {
					t.Fatalf("take %d in the outage is %+v", i, r)
				}
			}
			server.Restart(t)
			eventually(t, "the store answers again", func() bool {
				r := h.take(mode, charge("another", 10, 3600, 0))
				return r.Outcome == weir.Counted
			})
			if r := h.take(mode, ten()); !r.Allowed || r.Leased || r.Used[0].Count != before+1 {
				t.Errorf("the first take after the restart is %+v, want one that the server counts after %d", r, before)
			}
			// What is leased with it may be gone too, if another connection follows.
			allowed := before + 1
			for range 30 {
				if h.take(mode, ten()).Allowed {
					allowed++
				}
			}
			if all := counters(t, server); allowed > 10 || len(all) != 1 || all[0].count != 10 {
				t.Errorf("%d units were given out of 10, and the server has %+v", allowed, all)
			}
		})
	}
}

// What went back is not counted as spent in an outage that follows.
func TestAnOutageKnowsWhatWentBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	h := newHolder(t, redisstore.Options{Addresses: []string{server.Addr()}}, lenient)
	idle := ten()
	idle.Per = 600 // they are idle after a sixtieth of it
	h.take(weir.FailLocal, idle)
	eventually(t, "idle units go back", func() bool { return h.store.Stats().Leases.Returned == 7 })
	server.Kill()
	allowed := 0
	for range 30 {
		if h.take(weir.FailLocal, idle).Allowed {
			allowed++
		}
	}
	if allowed != 9 {
		t.Errorf("%d takes were allowed in the outage, want the 9 that are left", allowed)
	}
}

// Whether the rest of a body is worth reading is asked with gates: they pass while units are left.
func TestAnOutageLetsGatesPassWhileUnitsAreLeft(t *testing.T) {
	t.Parallel()
	const mode = weir.FailPocket | weir.FailDeny
	server := redistest.Start(t)
	h := newHolder(t, redisstore.Options{Addresses: []string{server.Addr()}}, lenient)
	h.take(mode, ten())
	server.Kill()
	gate := ten()
	gate.Cost = weir.Gate
	for i := range 7 {
		if r := h.take(mode, gate); !r.Allowed || r.Used[0].Count != int64(i+1) {
			t.Errorf("with %d units left the gate is %+v", 7-i, r)
		}
		if r := h.take(mode, ten()); !r.Allowed || !r.Leased {
			t.Errorf("take %d is %+v", i, r)
		}
	}
	if r := h.take(mode, gate); r.Allowed || r.Outcome != weir.StoreUnavailable {
		t.Errorf("without units the gate is %+v", r)
	}
}

// Connections to Sentinels come and go without an effect on what is leased of their master.
func TestSentinelsThatAreRestartedVoidNothing(t *testing.T) {
	t.Parallel()
	const mode = weir.FailPocket | weir.FailDeny
	master, sentinel, _ := redistest.StartSentinelWithClock(t)
	o := redisstore.Options{Addresses: []string{sentinel.Addr()}, Master: redistest.MasterName}
	h, other := newHolder(t, o, lenient), open(t, redisstore.Options{Addresses: []string{master.Addr()}})
	h.take(mode, ten())
	sentinel.Kill()
	sentinel.Restart(t)
	if r := h.take(weir.FailDeny, ten()); !r.Allowed || !r.Leased {
		t.Errorf("a take after the restart is %+v, want one from what was leased", r)
	}
	reset(t, other, ten())
	eventually(t, "the reset is noticed", func() bool { return h.store.Stats().Leases.Stranded == 6 })
}
