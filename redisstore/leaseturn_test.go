package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/lease"
)

// A slowLender answers like lease.lua. It answers takes that look (with gates) only when it may.
type slowLender struct {
	store *simStore
	looks chan struct{}
	slow  chan struct{}    // the answers of takes that look are on their way until it is closed
	most  map[string]int64 // units that it lends at once
	gone  bool             // the connection that has charged has ended, and the server answers

	mu    sync.Mutex
	asked int
	fails error // in place of an answer

	silent       bool   // it does not answer whether it is there
	unmarked     bool   // its answers have no marks, and lend nothing
	looksAtEpoch func() // is called when it is asked whether a connection lasts; nil: nothing
	answered     func() // is called while an answer is on its way
	epoch        uint64
}

func newSlowLeases() (*leases, *slowLender) {
	lender := &slowLender{store: &simStore{keys: make(map[string]*simKey)}, looks: make(chan struct{}), most: map[string]int64{"a": 7, "b": 7}}
	began := time.Now()
	return newLeases(lender, func() (time.Duration, bool) { return time.Hour + time.Since(began), true }, LeasesEager), lender
}

// leasedOnce returns leases after a take of c, of which e holds what was leased with it.
func leasedOnce(t *testing.T) (a *leases, lender *slowLender, c weir.Charge, e *leased) {
	t.Helper()
	a, lender = newSlowLeases()
	c = of("a", 100, 1)
	ask(t, a, c)
	return a, lender, c, a.table.find(hashOf(&c))
}

func (s *slowLender) prepare(*leaseTake) bool { return true }

func (s *slowLender) gaveUp(error) {}

func (s *slowLender) reaches(context.Context, *leased) bool { return !s.silent }

func (s *slowLender) charge(ctx context.Context, t *leaseTake) error {
	s.mu.Lock()
	s.asked++
	fails := s.fails
	s.mu.Unlock()
	asked, gate := t.charges, false
	t.charges = slices.Clone(asked)
	for i := range t.charges {
		if t.charges[i].Cost == weir.Gate {
			gate, t.charges[i].Cost = true, 0 // simStore knows no gates
		}
	}
	if gate {
		<-s.looks
	}
	for i := range t.charges {
		t.wishes[i].Units = min(t.wishes[i].Units, s.most[string(t.charges[i].Key)])
	}
	if err := s.store.take(t); err != nil {
		t.charges = asked
		return err
	}
	for i := range t.charges {
		if c := &t.charges[i]; t.r.Allowed && !t.early && c.Cost > 0 {
			s.store.spent(c, t.r.Used[i], t.r.Ticket.At, false)
		}
	}
	if gate && s.slow != nil {
		<-s.slow
	}
	if s.answered != nil {
		s.answered()
	}
	if fails != nil {
		t.charges = asked
		return fails
	}
	t.charges = asked
	for i := range t.charges {
		if t.charges[i].Cost == weir.Gate && t.r.Used[i].Count >= t.charges[i].Limit {
			t.r.Allowed = false
		}
		l := &t.lots[i]
		if s.unmarked {
			*l = lease.Lot{}
			continue
		}
		l.Deadline, l.Sent, l.Window.Epoch = 2*time.Hour, 0, s.epoch
		if t.entries[i] != nil {
			t.entries[i].place.Store(&leasedPlace{name: string(t.charges[i].Key), slot: noSlot})
		}
	}
	return nil
}

func (s *slowLender) outlives(*leased, uint64) bool { return true }

func (s *slowLender) answers() bool { return true }

func (s *slowLender) giveBack(_ context.Context, e *leased, l lease.Lot) (int64, bool) {
	return s.store.giveBack(e.place.Load().name, l)
}

func (s *slowLender) lasts(_ *leased, epoch uint64) bool {
	if s.looksAtEpoch != nil {
		s.looksAtEpoch()
	}
	return !s.gone || epoch == 1
}

// ask takes, and returns the receipt.
func ask(t *testing.T, a *leases, charges ...weir.Charge) (r weir.Receipt) {
	t.Helper()
	take := &leaseTake{charges: charges, r: &r}
	for i := range charges {
		take.hashes[i] = hashOf(&charges[i])
	}
	if a.spend(charges, &take.hashes, &r) {
		return r
	}
	held, wishes := a.look(take)
	if err := a.take(t.Context(), take, held, wishes); err != nil {
		t.Error(err)
	}
	return r
}

func hashOf(c *weir.Charge) (x hash) {
	for _, b := range c.Key {
		x.lo = x.lo<<8 | uint64(b)
	}
	x.hi = x.lo
	return x
}

func of(key string, limit, cost int64) weir.Charge {
	return weir.Charge{Key: []byte(key), Limit: limit, Per: 3600, Cost: cost}
}

// A take that has the turn of one window is under way for its other windows too, also if those were
// not observed yet: no units are leased of them meanwhile, or its refusal would be for units that
// this process could still give out.
func TestATakeInTurnIsUnderWayForAllItsWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, lender := newSlowLeases()
		ask(t, a, of("a", 8, 1)) // now its pocket has units, and its takes have turns
		looked := make(chan weir.Receipt, 1)
		go func() { looked <- ask(t, a, of("a", 8, weir.Gate), of("b", 8, weir.Gate)) }()
		synctest.Wait()
		leased := make(chan weir.Receipt, 1)
		go func() { leased <- ask(t, a, of("b", 8, 1)) }()
		time.Sleep(time.Millisecond) // of the bubble's time
		close(lender.looks)
		if r := <-looked; !r.Allowed {
			t.Errorf("refused at %d of 8 and %d of 8", r.Used[0].Count, r.Used[1].Count)
		}
		if r := <-leased; !r.Allowed || r.Used[0].Count != 1 {
			t.Errorf("the take that leases: allowed %t at %d", r.Allowed, r.Used[0].Count)
		}
	})
}

// Units that were charged before another window was reset by an operator serve no take together
// with units of that window: its ticket would be from before the reset.
func TestUnitsOfBothSidesOfAResetServeNoTakeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, lender := newSlowLeases()
		ask(t, a, of("b", 100, 1), of("a", 100, 1))
		time.Sleep(time.Second)
		k := lender.store.keys["a"]
		k.reset()
		time.Sleep(time.Second)
		reset := of("a", 100, 1)
		end, err := a.hold(t.Context(), []weir.Charge{reset}, []hash{hashOf(&reset)})
		if err != nil {
			t.Fatal(err)
		}
		end()
		for range 3 {
			r := ask(t, a, of("b", 100, 1), of("a", 100, 1))
			if !r.Allowed || r.Ticket.At <= k.mark {
				t.Errorf("allowed %t, leased %t, as of %d: the window was reset at %d", r.Allowed, r.Leased, r.Ticket.At, k.mark)
			}
		}
	})
}

// A refusal counts units that were given out while its answer was on its way, so it is not earlier
// than they are.
func TestARefusalIsNotBeforeTheUnitsThatItCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, lender := newSlowLeases()
		now, _ := a.clock()
		a.ahead.learn(time.Now().UnixNano(), now, now)
		lender.slow = make(chan struct{})
		close(lender.looks)
		ask(t, a, of("b", 100, 1)) // with 7 for later
		full := of("a", 1, 1)
		ask(t, a, full)
		refused := make(chan weir.Receipt, 1)
		go func() { refused <- ask(t, a, of("a", 1, weir.Gate), of("b", 100, 0)) }()
		synctest.Wait()
		time.Sleep(2 * time.Second)
		var last weir.Receipt
		for range 7 {
			last = ask(t, a, of("b", 100, 1))
		}
		close(lender.slow)
		if r := <-refused; r.Allowed || !last.Leased || r.Used[1].Count != last.Used[0].Count || r.Now < last.Now {
			t.Errorf("refused: %t at %d with a count of %d; the last leased unit was given out at %d as number %d (leased: %t)", !r.Allowed, r.Now, r.Used[1].Count, last.Now, last.Used[0].Count, last.Leased)
		}
	})
}

// Windows that are always charged together stand at the same count, whoever is served from their
// pockets while these are filled.
func TestPocketsAreFilledTogether(t *testing.T) {
	a, lender := newSlowLeases()
	lender.most["a"] = 3 // so one pocket has units when the other is filled
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 500 {
				if r := ask(t, a, of("a", 1<<30, 1), of("b", 1<<30, 1)); r.Used[0].Count != r.Used[1].Count {
					t.Errorf("leased %t, and the windows stand at %d and %d", r.Leased, r.Used[0].Count, r.Used[1].Count)
				}
			}
		})
	}
	all.Wait()
}

// A take that only units of an ended connection could serve is refused by the server, which is
// asked once more after they were dropped.
func TestUnitsOfAnEndedConnectionAreDroppedByARefusal(t *testing.T) {
	a, lender := newSlowLeases()
	first := of("a", 10, 1)
	if r := ask(t, a, first); !r.Allowed || a.table.find(hashOf(&first)).pocket.Units() != 7 {
		t.Fatalf("the first take is %+v", r)
	}
	lender.gone, lender.asked = true, 0
	if r := ask(t, a, of("a", 10, 8)); r.Allowed || r.Used[0].Count != 8 || lender.asked > 2 {
		t.Errorf("%d questions, and then %+v; want at most 2, a refusal, and a count of 8", lender.asked, r)
	}
	if units := a.table.find(hashOf(&first)).pocket.Units(); units != 0 {
		t.Errorf("%d units are left", units)
	}
}

// If a clock is set back after units were given out, the time of that is after their window, which
// the server still knows. It is asked once more, not again and again.
func TestARefusalAfterAClockWasSetBackAsksTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, lender := newSlowLeases()
		clock, ahead := a.clock, 50*time.Minute
		a.clock = func() (time.Duration, bool) {
			now, ok := clock()
			return now + ahead, ok
		}
		now, _ := clock()
		a.ahead.learn(time.Now().UnixNano(), now, now)
		in := weir.Charge{Key: []byte("a"), Limit: 10, Per: 600, Cost: 1}
		ask(t, a, in)
		if r := ask(t, a, in); !r.Leased {
			t.Fatalf("the second take is %+v", r)
		}
		ahead, lender.asked = 0, 0
		in.Cost = 9
		r := ask(t, a, in)
		if r.Allowed || lender.asked != 2 || r.Used[0].Count != 2 || r.Now != r.Used[0].Reset-1 {
			t.Errorf("%d questions, and then %+v; want 2, a refusal with a count of 2, and the last second of the window", lender.asked, r)
		}
	})
}

// A take has the time of units that were given out meanwhile, but is in all of its windows.
func TestATakeIsBeforeEachOfItsWindowsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, lender := newSlowLeases()
		now, _ := a.clock()
		a.ahead.learn(time.Now().UnixNano(), now, now)
		lender.most["b"] = 0
		long, short := of("a", 100, 1), of("b", 100, 1)
		short.Per = 5
		ask(t, a, long, short)
		time.Sleep(4 * time.Second)
		// the server's answer is at the fourth second, and arrives after the short window has ended
		lender.answered = func() {
			time.Sleep(2 * time.Second)
			lender.answered = nil
			if r := ask(t, a, long); !r.Leased {
				t.Errorf("beside it: %+v", r)
			}
		}
		r := ask(t, a, long, short)
		if !r.Allowed || r.Leased || r.Now != r.Used[1].Reset-1 {
			t.Errorf("%+v, want the last second of the window that ends first", r)
		}
	})
}

// Another machine of a cluster begins an epoch too: units of a machine that lasts stay.
func TestUnitsOutliveAnEpochOfAnotherMachine(t *testing.T) {
	for _, gone := range []bool{false, true} {
		a, lender := newSlowLeases()
		c := of("a", 10, 1)
		ask(t, a, c)
		lender.epoch, lender.gone = 1, gone
		c.Exact = true // of the server
		ask(t, a, c)
		units, want := a.table.find(hashOf(&c)).pocket.Units(), int64(7)
		if gone {
			want = 0
		}
		if stranded := a.stranded.Load(); units != want || stranded != 7-want {
			t.Errorf("the machine is gone: %v: %d units are left and %d stranded, want %d left", gone, units, stranded, want)
		}
	}
}

// A gate asks under a lower limit. Units that were leased serve requests as before.
func TestAGateLeavesTheLimitOfUnits(t *testing.T) {
	a, lender := newSlowLeases()
	close(lender.looks)
	ask(t, a, of("a", 100, 2))
	ask(t, a, of("a", 99, weir.Gate))
	if r := ask(t, a, of("a", 100, 2)); !r.Leased {
		t.Errorf("after a gate: %+v", r)
	}
}

// Settlements of a window that has units are under way together, and each pocket gets to know
// their counts. Units are asked for when they are answered; those that begin meanwhile wait.
func TestSettlementsAreUnderWayTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, lender := newSlowLeases()
		c := of("a", 100, 1)
		ask(t, a, c)
		settling := func() *order {
			o := &order{changes: []orderedChange{{hash: hashOf(&c), units: -1}}}
			a.settling(t.Context(), o)
			return o
		}
		first, second := settling(), settling()
		lender.asked = 0
		filled := make(chan weir.Receipt, 1)
		go func() { filled <- ask(t, a, of("a", 100, 20)) }()
		synctest.Wait()
		third := make(chan *order, 1)
		go func() { third <- settling() }()
		synctest.Wait()
		first.leave()
		second.leave()
		synctest.Wait() // time goes on only when all wait
		if len(filled) != 0 || len(third) != 0 {
			t.Errorf("%d answers, and %d further settlements, while units are about to be asked for", len(filled), len(third))
		}
		if r := <-filled; !r.Allowed || lender.asked != 1 {
			t.Errorf("after %d questions %+v", lender.asked, r)
		}
		(<-third).leave()
	})
}

// An answer without the marks of resets grants nothing, and leaves the units that are there, but
// those of a window that an operator has reset.
func TestUnitsOutliveAnAnswerWithoutMarks(t *testing.T) {
	for _, reset := range []bool{false, true} {
		a, lender := newSlowLeases()
		c := of("a", 100, 1)
		ask(t, a, c)
		lender.unmarked = true
		if reset {
			lender.store.keys["a"].open.count = 0
		}
		c.Exact = true // of the server
		r := ask(t, a, c)
		want := weir.Used{Count: 2, Reset: r.Used[0].Reset}
		units := int64(7)
		if reset {
			want.Count, units = 1, 0
		}
		if got := a.table.find(hashOf(&c)).pocket.Units(); r.Used[0] != want || got != units || a.stranded.Load() != 7-units {
			t.Errorf("reset: %v: the count is %+v, %d units are left, and %d are stranded; want %+v and %d", reset, r.Used[0], got, a.stranded.Load(), want, units)
		}
		if r := ask(t, a, of("a", 100, 1)); reset == r.Leased || r.Used[0].Count != want.Count+1 {
			t.Errorf("reset: %v: the next take is %+v", reset, r)
		}
	}
}

// A take that finds the units of an ended connection drops those, and not what was filled in since.
func TestUnitsOfANewConnectionStay(t *testing.T) {
	a, lender := newSlowLeases()
	c := of("a", 100, 1)
	ask(t, a, c)
	e := a.table.find(hashOf(&c))
	lender.looksAtEpoch = func() { // the take has its units, and asks of which connection they are
		lender.looksAtEpoch = nil
		lender.epoch = 1
		ask(t, a, of("a", 100, 50))
	}
	lender.gone = true
	var r weir.Receipt
	hashes := [weir.MaxCharges]hash{hashOf(&c)}
	if a.spend([]weir.Charge{of("a", 100, 1)}, &hashes, &r) {
		t.Errorf("units of an ended connection have served a take: %+v", r)
	}
	if units := e.pocket.Units(); units != 7 {
		t.Errorf("%d units are left of the 7 that the new connection has charged", units)
	}
}

// Units whose window is in use for as long as they could go back are still to be given back.
func TestUnitsInUseAreStillToGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _, e := leasedOnce(t)
		if err := e.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(a.returnAll(t.Context())) != 1 {
			t.Error("all are back, while their window is in use")
		}
		e.release()
		if len(a.returnAll(t.Context())) > 0 || e.pocket.Units() > 0 {
			t.Errorf("%d units are left", e.pocket.Units())
		}
	})
}

// A farLender takes a while for units that go back.
type farLender struct{ *slowLender }

func (f farLender) giveBack(ctx context.Context, e *leased, l lease.Lot) (int64, bool) {
	time.Sleep(20 * time.Millisecond) // of the bubble's time
	return f.slowLender.giveBack(ctx, e, l)
}

// If more windows have units than can go back in time, those that could not are still to come.
func TestUnitsThatHadNoTimeAreStillToGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, lender := newSlowLeases()
		a.of = farLender{lender}
		for i := range 5000 {
			c := of(fmt.Sprint(i), 1000, 1)
			lender.most[string(c.Key)] = 7
			x := uint64(i + 1)
			if err := a.take(t.Context(), &leaseTake{charges: []weir.Charge{c}, r: new(weir.Receipt), hashes: [weir.MaxCharges]hash{{x, x}}}, false, true); err != nil {
				t.Fatal(err)
			}
		}
		late := a.returnAll(t.Context())
		if len(late) == 0 {
			t.Fatal("all had time")
		}
		for len(late) > 0 {
			late = a.returnThese(t.Context(), late)
		}
		for _, e := range a.active.list() {
			if e.pocket.Units() > 0 {
				t.Fatal("a window has units, and is not named as one that had no time")
			}
		}
	})
}

// A settlement that has waited for one window's turn looks at its other windows again: meanwhile
// units of these may be asked for, although they were not observed before.
func TestASettlementThatHasWaitedLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, lender := newSlowLeases()
		observed, other := of("b", 100, 1), of("a", 10, 1)
		ask(t, a, observed)
		e := a.table.find(hashOf(&observed))
		if err := e.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		o := &order{changes: []orderedChange{{hash: hashOf(&other), units: -1}, {hash: hashOf(&observed), units: -1}}}
		settled := make(chan struct{})
		go func() {
			a.settling(t.Context(), o)
			close(settled)
		}()
		synctest.Wait()
		answer := make(chan struct{})
		lender.answered = func() { <-answer }
		go ask(t, a, other)
		synctest.Wait()
		e.release()
		synctest.Wait()
		select {
		case <-settled:
			t.Error("the settlement is under way together with a question for units")
		default:
		}
		close(answer)
		<-settled
		o.leave()
	})
}

// Units that were dropped are not what this process spends: after several connections have ended it
// would ask for all that is left.
func TestDroppedUnitsAreNotSpentOnes(t *testing.T) {
	a, lender := newSlowLeases()
	c := of("a", 1e9, 1)
	a.eager = false
	for range 3 {
		ask(t, a, c)
	}
	wish := func() int64 {
		now, _ := a.clock()
		w, _ := a.table.watched(hashOf(&c)).wish(hashOf(&c), &c, now, time.Now().Unix(), 0)
		return w.Units
	}
	a.eager = true // so that it has as many as its lender lends
	ask(t, a, of("a", 1e9, 100))
	a.eager = false
	before := wish()
	lender.gone = true
	ask(t, a, c) // drops the units, and asks
	if after := wish(); before == 0 || after > before+10 {
		t.Errorf("before the connection had ended the wish was %d units, and then %d", before, after)
	}
}
