package storetest_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// plain is the simplest correct store: one lock around everything.
type plain struct {
	clock *storetest.ManualClock
	mu    sync.Mutex
	used  map[string]weir.Used
	told  map[string]int64 // resets, for keepOtherSpan

	grants map[string]weir.Grant

	takes, opened uint64                       // the number of allowed takes, and of opened windows
	windows       map[string]uint64            // the number of the window that each key has
	tickets       map[uint64]map[string]uint64 // the windows of each take
	reset         map[string]uint64            // the takes before the last reset
}

func newPlain(clock *storetest.ManualClock) *plain {
	return &plain{
		clock: clock, used: map[string]weir.Used{}, told: map[string]int64{}, grants: map[string]weir.Grant{},
		windows: map[string]uint64{}, tickets: map[uint64]map[string]uint64{}, reset: map[string]uint64{},
	}
}

func (s *plain) Take(_ context.Context, charges []weir.Charge, r *weir.Receipt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	*r = s.judge(charges, s.clock.Now().Unix())
	before := slices.Clone(r.Used[:len(charges)])
	if s.spend(charges, r); r.Allowed {
		r.Ticket = s.identify(charges, before)
	}
	return nil
}

// judge returns the standings at now and whether the charges fit, without spending.
func (s *plain) judge(charges []weir.Charge, now int64) weir.Receipt {
	r := weir.Receipt{Allowed: true, Now: now}
	for i, c := range charges {
		if r.Used[i] = s.used[string(c.Key)]; !c.Held {
			r.Used[i] = r.Used[i].At(now, c.End(now))
		}
		r.Allowed = r.Allowed && r.Used[i].Fits(c.Cost, c.Limit)
		s.used[string(c.Key)] = r.Used[i]
	}
	return r
}

// spend spends the charges if r allows them.
func (s *plain) spend(charges []weir.Charge, r *weir.Receipt) {
	for i, c := range charges {
		if r.Allowed && c.Held {
			r.Used[i].Count += c.Cost
			s.used[string(c.Key)] = r.Used[i]
		} else if r.Allowed {
			r.Used[i] = s.used[string(c.Key)].Spend(c.Cost, c.End(r.Now))
			s.used[string(c.Key)] = r.Used[i]
		}
	}
}

// faultVariable is the environment variable that names TestStore's faulty store.
const faultVariable = "STORETEST_FAULT"

// A correct store passes. TestTheSuiteFindsEachFault runs this test in another
// process with a faulty store.
func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (weir.Store, storetest.Clock) {
		clock := storetest.StartManualClock()
		s := newPlain(clock)
		if name := os.Getenv(faultVariable); name != "" {
			return allFaults()[name].store(s), clock
		}
		return s, clock
	})
}

// Each faulty store fails the subtests for its fault.
func TestTheSuiteFindsEachFault(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it starts processes")
	}
	for name, fault := range allFaults() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, subtest := range fault.found {
				mustFail(t, name, strings.ReplaceAll(subtest, " ", "_"))
			}
		})
	}
}

func allFaults() map[string]fault {
	all := maps.Clone(faults)
	maps.Copy(all, keeperFaults)
	maps.Copy(all, settlerFaults)
	maps.Copy(all, leaserFaults)
	return all
}

func mustFail(t *testing.T, name, subtest string) {
	t.Helper()
	// If a fault depends on scheduling, one run may miss it, so up to 20 runs look
	// for it.
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStore$/^"+subtest+"$", "-rapid.nofailfile", "-test.count=20", "-test.failfast")
	cmd.Env = append(os.Environ(), faultVariable+"="+name)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(string(out), "--- FAIL: TestStore/"+subtest) {
		t.Errorf("%q does not find it: %v\n%.2000s", subtest, err, out)
	}
}

// yield lets other takes run for a random time, at a point where a faulty store may
// make an error.
func yield() {
	for range 1 + rand.IntN(3) {
		runtime.Gosched()
	}
}
