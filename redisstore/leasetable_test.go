package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// An instantLender admits every take at once, and counts nothing.
type instantLender struct{ slowLender }

func (*instantLender) charge(_ context.Context, t *leaseTake) error {
	now := time.Now()
	*t.r = weir.Receipt{Allowed: true, Now: now.Unix(), Ticket: weir.Ticket{At: now.UnixMilli()}}
	for i := range t.charges {
		t.r.Used[i] = weir.Used{Count: 1, Reset: now.Unix() + 3600}
	}
	return nil
}

// What leases cost a take that the server is asked for, of many keys that come seldom.
func BenchmarkTakesOfManyKeys(b *testing.B) {
	for name, keys := range map[string]uint64{"places for all": 1 << 14, "too many": 1 << 18} {
		b.Run(name, func(b *testing.B) {
			began := time.Now()
			a := newLeases(new(instantLender), func() (time.Duration, bool) { return time.Hour + time.Since(began), true }, LeasesAuto)
			charges := []weir.Charge{of("a", 1e9, 1)}
			random := rand.New(rand.NewPCG(1, 1))
			var t leaseTake
			var r weir.Receipt
			for b.Loop() {
				n := random.Uint64N(keys)
				t = leaseTake{charges: charges, r: &r}
				t.hashes[0] = hash{hi: n * 0x9e3779b97f4a7c15, lo: n * 0xff51afd7ed558ccd}
				if a.spend(charges, &t.hashes, &r) {
					continue
				}
				held, wishes := a.look(&t)
				if err := a.take(context.Background(), &t, held, wishes); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Keys that come once, however many, take no place from those that come again; and those that come
// more often take the places of those that do not come any more.
func TestKeysThatComeOnceTakeNoPlace(t *testing.T) {
	table, now := new(leaseTable), time.Hour
	table.init()
	at := func(n uint64) hash { return hash{hi: 5 + n*leaseLines, lo: n << 32} } // all in one line
	take := func(n uint64) *watched {
		w := table.watched(at(n))
		if w == nil {
			w = table.watch(at(n), now)
		}
		if w != nil {
			w.used.Store(int64(now))
		}
		return w
	}
	const places = 8
	for n := range uint64(places) {
		if take(n) == nil {
			t.Fatalf("key %d of %d has no place", n+1, places)
		}
	}
	for n := range uint64(1000) {
		now += time.Millisecond
		if take(100+n) != nil {
			t.Fatalf("new key %d has a place", n)
		}
		take(n % places)
	}
	for n := range uint64(places) {
		if table.watched(at(n)) == nil {
			t.Errorf("key %d, which comes all the time, has lost its place", n)
		}
	}
	now += 20 * time.Millisecond
	if take(5000) != nil {
		t.Error("a key has a place at once")
	}
	now += 10 * time.Millisecond
	if take(5000) == nil {
		t.Error("a key that comes every 10 ms has no place beside some that came 30 ms ago")
	}
	if take(0) != nil {
		t.Error("the key that came longest ago has kept its place")
	}
	for n := range uint64(places - 1) {
		now += time.Millisecond
		take(1 + n)
	}
	now += 10 * time.Millisecond
	if take(0) != nil {
		t.Error("a key that comes less often than all that have places has got one")
	}
}

// A take that waits for its turn comes once, too.
func TestATakeInTurnComesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := newSlowLeases()
		// all in one line of the table
		key := func(n int) weir.Charge { return of(fmt.Sprintf("%06dAA", n), 100, 1) }
		const places = 8
		for n := range places {
			ask(t, a, key(n))
		}
		time.Sleep(time.Second)
		fresh := key(places)
		ask(t, a, fresh)
		if a.table.watched(hashOf(&fresh)) != nil {
			t.Error("a key that came once has the place of another")
		}
	})
}

// A window of which nothing is leased is observed, also in takes that have the turn of another.
func TestAWindowBesideALeasedOneIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := newSlowLeases()
		all, caller := of("a", 1000, 1), of("c", 1000, 1)
		ask(t, a, all) // now units of it are leased
		a.eager = false
		for n := range 20 {
			time.Sleep(time.Second) // of the bubble's time
			if a.table.find(hashOf(&caller)) != nil {
				return
			}
			if r := ask(t, a, caller, all); r.Used[0].Count != int64(1+n) {
				t.Errorf("take %d of the caller is number %d", 1+n, r.Used[0].Count)
			}
		}
		t.Error("20 takes of a caller in as many seconds are not worth leasing, so they were not observed")
	})
}
