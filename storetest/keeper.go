package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// A keeping is a harness whose store is a weir.Keeper.
type keeping struct {
	*harness
	keeper weir.Keeper
}

// kept makes a test of keepers a test of stores. A store that is no keeper passes.
func kept(run func(*keeping)) func(*harness) {
	return func(h *harness) {
		if k, ok := h.store.(weir.Keeper); ok {
			run(&keeping{h, k})
		}
	}
}

func (k *keeping) reset(charges ...weir.Charge) {
	k.Helper()
	if err := k.keeper.Reset(k.Context(), charges); err != nil {
		k.Fatalf("reset: %v", err)
	}
}

func (k *keeping) grant(charges []weir.Charge, grants ...weir.Grant) {
	k.Helper()
	if err := k.keeper.Grant(k.Context(), charges, grants); err != nil {
		k.Fatalf("grant: %v", err)
	}
}

// granted compares the grants of charges; without want each must be the zero Grant.
func (k *keeping) granted(charges []weir.Charge, want ...weir.Grant) {
	k.Helper()
	if len(want) == 0 {
		want = make([]weir.Grant, len(charges))
	}
	got, some := make([]weir.Grant, len(charges)), false
	for i := range want {
		some = some || want[i] != weir.Grant{}
		got[i] = weir.Grant{Limit: 12345, Until: 67890} // old content of the caller's slice
	}
	found := k.keeper.Granted(charges, got)
	if found != some {
		k.Fatalf("there is a grant: %v, want %v", found, some)
	}
	for i := range want {
		if found && got[i] != want[i] {
			k.Fatalf("charge %d, key %.40q: granted %+v, want %+v", i, charges[i].Key, got[i], want[i])
		}
	}
}

// to returns a grant of limit for d from now.
func (k *keeping) to(limit int64, d time.Duration) weir.Grant {
	return weir.Grant{Limit: limit, Until: k.clock.Now().Unix() + int64(d/time.Second)}
}

func resetRestores(k *keeping) {
	one := charges{charge("a", 2, time.Minute, 1)}
	for range 3 {
		k.expect(true, one, [2]int64{1, 60})
		k.expect(true, one, [2]int64{2, 60})
		k.advance(10 * time.Second)
		k.expect(false, one, [2]int64{2, 50})
		k.reset(one...)
		k.expect(true, charges{charge("a", 2, time.Minute, 0)}, [2]int64{0, 0})
	}
	k.advance(45 * time.Second)
	k.expect(true, one, [2]int64{1, 60}) // a new window, not the rest of the old one
	k.reset(one...)
	k.reset(one...)
	k.expect(true, charges{charge("a", 2, time.Minute, 2)}, [2]int64{2, 60})
}

func resetLeavesOthers(k *keeping) {
	minute, hour, other := charge("a", 2, time.Minute, 1), charge("a", 9, time.Hour, 1), charge("b", 2, time.Minute, 1)
	k.expect(true, charges{minute, hour, other}, [2]int64{1, 60}, [2]int64{1, 3600}, [2]int64{1, 60})
	k.expect(true, charges{minute, hour, other}, [2]int64{2, 60}, [2]int64{2, 3600}, [2]int64{2, 60})
	k.advance(10 * time.Second)
	k.reset(minute)
	k.expect(false, charges{minute, hour, other}, [2]int64{0, 0}, [2]int64{2, 3590}, [2]int64{2, 50})
	k.expect(true, charges{minute, hour}, [2]int64{1, 60}, [2]int64{3, 3590})
	k.reset(other, hour)
	k.expect(true, charges{minute, hour, other}, [2]int64{2, 60}, [2]int64{1, 3600}, [2]int64{1, 60})
}

func resetOfNothing(k *keeping) {
	all := charges{charge("", 2, time.Minute, 1), charge("\x00\xff\xfe a{b}", 2, time.Minute, 1)}
	k.reset(all...)
	k.expect(true, all, [2]int64{1, 60}, [2]int64{1, 60})
	k.advance(time.Minute)
	k.reset(all...) // they have ended
	k.reset(charge("nobody", 2, time.Minute, 1), all[1])
	k.expect(true, all, [2]int64{1, 60}, [2]int64{1, 60})
}

// resetAmongTakes resets a window each time it is spent, while a hundred callers take: between two
// resets exactly the limit is admitted.
func resetAmongTakes(k *keeping) {
	const limit, resets, callers = 25, 12, 100
	one := charge("a", limit, weir.MaxPer, 1) // outlasts the test
	var admitted atomic.Int64
	take := func() {
		if k.take(one).Allowed {
			admitted.Add(1)
		}
	}
	k.whileTaking(callers, take, func() {
		for n := int64(1); n <= resets; n++ {
			for tries := 0; admitted.Load() < n*limit; tries++ {
				if tries > 50_000 {
					k.Errorf("after %d resets %d were admitted, and no more, of a limit of %d", n-1, admitted.Load(), limit)
					return
				}
				take()
				k.advance(time.Second) // a remembered refusal is asked again
			}
			if a := admitted.Load(); a != n*limit {
				k.Errorf("after %d resets %d were admitted of a limit of %d", n-1, a, limit)
			}
			if n < resets {
				k.reset(one)
			}
		}
	})
	if a := admitted.Load(); a != resets*limit {
		k.Errorf("%d were admitted in %d windows of %d", a, resets, limit)
	}
}

// resetIsWhole resets two windows together that are always charged together: no take finds only one
// of them reset.
func resetIsWhole(k *keeping) {
	const callers, resets = 100, 60
	both := charges{charge("a", weir.MaxLimit, time.Hour, 1), charge("a", weir.MaxLimit, 24*time.Hour, 1)}
	var admitted, highest atomic.Int64
	k.whileTaking(callers, func() {
		r := k.take(both...)
		if r.Used[0].Count != r.Used[1].Count {
			k.Errorf("two windows that were charged and reset together stand at %+v and %+v", r.Used[0], r.Used[1])
		}
		admitted.Add(1)
		if c := r.Used[0].Count; c > highest.Load() {
			highest.Store(c)
		}
	}, func() {
		random := rand.New(rand.NewPCG(3, 0))
		for n := range resets {
			for enough := admitted.Load() + int64(random.IntN(200)); admitted.Load() < enough && !k.Failed(); {
				k.take(charge("other", weir.MaxLimit, time.Hour, 1))
			}
			k.reset(both[n%2], both[1-n%2])
		}
	})
	if highest.Load() == admitted.Load() {
		k.Errorf("%d takes were counted one after the other, through %d resets", admitted.Load(), resets)
	}
}

// whileTaking has callers take without a pause while during runs.
func (k *keeping) whileTaking(callers int, take, during func()) {
	var all sync.WaitGroup
	var over atomic.Bool
	for range callers {
		all.Go(func() {
			for !over.Load() && !k.Failed() {
				take()
			}
		})
	}
	defer all.Wait()
	defer over.Store(true)
	during()
}

func grantHolds(k *keeping) {
	k.toFraction(500_000_000)
	a, b := charge("a", 2, time.Minute, 1), charge("b", 2, time.Minute, 1)
	k.granted(charges{a, b})
	raised := k.to(50, time.Hour)
	k.grant(charges{a}, raised)
	k.granted(charges{a, b}, raised, weir.Grant{})
	k.granted(charges{b, a}, weir.Grant{}, raised)
	k.granted(charges{b})
	k.granted(charges{charge("a", 2, time.Hour, 1)}) // another window of the same caller
	k.advance(30 * time.Minute)
	k.granted(charges{a}, raised)
}

// grantEnds allows some milliseconds around the second, since a store may know its server's clock
// no better.
func grantEnds(k *keeping) {
	a, b := charges{charge("a", 2, time.Minute, 1)}, charges{charge("b", 2, time.Minute, 1)}
	k.toFraction(0)
	first, second := k.to(50, 100*time.Second), k.to(1, 200*time.Second)
	k.grant(a, first)
	k.grant(b, second)
	k.advance(100*time.Second - 5*time.Millisecond)
	k.granted(a, first)
	k.advance(25 * time.Millisecond)
	k.granted(a)
	k.granted(b, second)
	k.advance(100*time.Second - 25*time.Millisecond)
	k.granted(b, second)
	k.advance(25 * time.Millisecond)
	k.granted(b)
	k.granted(a)
	k.grant(a, k.to(9, -time.Second)) // ended from the start
	k.granted(a)
	k.grant(a, k.to(7, 10*time.Second)) // an ended grant does not prevent a new one
	k.granted(append(a, b...), k.to(7, 10*time.Second), weir.Grant{})
}

func grantReplaced(k *keeping) {
	k.toFraction(500_000_000)
	a, b := charge("a", 2, time.Minute, 1), charge("b", 2, time.Minute, 1)
	k.grant(charges{a, b}, k.to(50, time.Hour), k.to(60, time.Hour))
	lower := k.to(1, time.Minute)
	k.grant(charges{a}, lower)
	k.granted(charges{a, b}, lower, k.to(60, time.Hour))
	k.grant(charges{a}, weir.Grant{})
	k.granted(charges{a, b}, weir.Grant{}, k.to(60, time.Hour))
	// one call gives one and removes another
	k.grant(charges{a, b}, k.to(3, time.Hour), weir.Grant{})
	k.granted(charges{a, b}, k.to(3, time.Hour), weir.Grant{})
	k.grant(charges{a, b}, weir.Grant{}, weir.Grant{})
	k.granted(charges{a, b})
}

func grantsOfMany(k *keeping) {
	const each = 500
	k.toFraction(500_000_000)
	var all charges
	var grants []weir.Grant
	for i := range weir.MaxGrants {
		all = append(all, charge(fmt.Sprint(i), 2, time.Hour, 1))
		grants = append(grants, k.to(int64(i+1), time.Hour+time.Duration(i%7)*time.Minute))
	}
	for i := 0; i < each; i += 50 {
		k.grant(all[i:i+50], grants[i:i+50]...)
	}
	k.granted(all[:each], grants[:each]...)
	// the rest at once, up to the number that every keeper must keep
	k.grant(all[each:], grants[each:]...)
	k.granted(all, grants...)
	k.advance(2 * time.Hour)
	k.granted(all)
}

func grantOfAnyKey(k *keeping) {
	k.toFraction(500_000_000)
	long := make([]byte, 4096)
	hostile := []string{"", "\x00", "\x00\x00", "a\x00b", "\xff\xfe\x80", "{a}", "a b\r\n", "version", string(long), string(long[1:])}
	var all charges
	var grants []weir.Grant
	for i, who := range hostile {
		all = append(all, charge(who, 2, time.Hour, 1))
		grants = append(grants, k.to(int64(i+1), time.Hour))
	}
	k.grant(all, grants...)
	k.granted(all, grants...)
	k.granted(charges{charge("\xff\xfe\x81", 2, time.Hour, 1), charge("a", 2, time.Hour, 1), charge("\x00\x00\x00", 2, time.Hour, 1)})
	for i := range all {
		k.grant(all[i:i+1], weir.Grant{})
		grants[i] = weir.Grant{}
		k.granted(all, grants...)
	}
}

// grantCannotBe checks that invalid grants are rejected and change nothing.
func grantCannotBe(k *keeping) {
	k.toFraction(500_000_000)
	a, b := charge("a", 2, time.Minute, 1), charge("b", 2, time.Minute, 1)
	fine := k.to(9, time.Hour)
	k.grant(charges{a}, fine)
	for _, g := range []weir.Grant{{Limit: -1, Until: fine.Until}, {Limit: weir.MaxLimit + 1, Until: fine.Until}, {Limit: 5, Until: -1}, {Limit: 5, Until: 1<<63 - 1}} {
		if err := k.keeper.Grant(k.Context(), charges{b, a}, []weir.Grant{fine, g}); err == nil {
			k.Errorf("%+v was granted", g)
		}
		k.granted(charges{a, b}, fine, weir.Grant{})
	}
	if err := k.keeper.Grant(k.Context(), charges{b, a}, []weir.Grant{fine}); err == nil {
		k.Error("one grant was given to two windows")
	}
	k.granted(charges{a, b}, fine, weir.Grant{})
}

// grantsSpendNothing checks that a take is decided by its own limit, whatever was granted, and that
// a grant spends no unit.
func grantsSpendNothing(k *keeping) {
	k.toFraction(500_000_000)
	a, b := charges{charge("a", 2, time.Minute, 1)}, charges{charge("b", 2, time.Minute, 1)}
	k.expect(true, a, [2]int64{1, 60})
	k.grant(a, k.to(50, time.Hour))
	for range 100 {
		k.granted(charges{a[0], b[0]}, k.to(50, time.Hour), weir.Grant{})
	}
	k.expect(true, a, [2]int64{2, 60})
	k.expect(false, a, [2]int64{2, 60})
	k.expect(true, charges{charge("a", 50, time.Minute, 48)}, [2]int64{50, 60})
	k.expect(true, b, [2]int64{1, 60})
	k.reset(a...)
	k.granted(a, k.to(50, time.Hour)) // a reset affects only the count
	k.grant(a, weir.Grant{})
	k.expect(true, a, [2]int64{1, 60})
	k.expect(true, b, [2]int64{2, 60})
	k.expect(false, b, [2]int64{2, 60})
}
