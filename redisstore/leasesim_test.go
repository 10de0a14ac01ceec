package redisstore

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/lease"
	"github.com/weirlimit/weir/internal/wait"
)

// This file runs the leases of several nodes against a store in this process, which answers like
// lease.lua. Time, the clocks of the nodes and the network are simulated: a seed decides which
// messages are late or lost, which nodes end or lose their connection, and when an operator resets
// a window. leasemodel_test.go searches the protocol; this runs the code.
//
// A seed is one run: nothing is drawn in an order that the scheduler decides. What happens to a
// message follows from its node and the time.

// A simFault breaks one rule.
type simFault string

const (
	simSound          simFault = "no fault"
	simFromAnswer     simFault = "deadlines count from the answer"
	simFastStore      simFault = "deadlines have no guard for drift"
	simUncharged      simFault = "granted units are not charged"
	simUncut          simFault = "more is granted than the window has left"
	simReturnTwice    simFault = "a return arrives twice"
	simReturnAnyReset simFault = "a return does not name its window"
	simReturnAnyGen   simFault = "a return survives an operator's reset"
	simMarkEnds       simFault = "the mark of a reset ends before the units that are leased after it"
)

// A simNode is a node, and the network between it and the store.
type simNode struct {
	store *simStore
	index uint64
	now   atomic.Pointer[simProcess]
	epoch atomic.Uint64
	other atomic.Uint64 // the last epoch before the store answered on another connection
	away  atomic.Bool   // the store is out of reach
	start time.Time
	drift float64
	delay time.Duration // of a message, at most
	even  bool          // each is as late
	lost  float64       // the part of messages that are lost
	end   context.CancelFunc

	admitted func() // is called for each request that was admitted; nil: nothing
}

// A simProcess is a process of a node: a lender for its leases. A dead one reaches nothing.
type simProcess struct {
	*simNode
	leases *leases
	dead   atomic.Bool
}

func (n *simNode) clock() (time.Duration, bool) {
	return time.Hour + time.Duration(float64(time.Since(n.start))*(1+n.drift)), true
}

// travel waits for a message, and reports whether it arrives before ctx ends.
func (n *simProcess) travel(ctx context.Context) bool {
	r := rand.New(rand.NewPCG(n.store.seed<<8+n.index, uint64(time.Now().UnixNano())))
	lost, late := r.Float64() < n.lost, below(r, n.delay)
	if n.even {
		late = n.delay
	}
	if lost || n.dead.Load() || n.away.Load() {
		<-ctx.Done()
		return false
	}
	return wait.For(ctx, late) == nil
}

var errSimLost = errors.New("no answer")

func (n *simProcess) charge(ctx context.Context, t *leaseTake) error {
	n.store.count(&n.store.asks)
	if t.early {
		n.store.count(&n.store.early)
	}
	sent, _ := n.clock()
	t.epoch, t.lots = n.epoch.Load(), [weir.MaxCharges]lease.Lot{}
	if !n.travel(ctx) {
		return errSimLost
	}
	failed := n.store.take(t)
	took := time.Now().UnixMilli()
	if !n.travel(ctx) {
		return errSimLost
	}
	if failed != nil {
		return failed
	}
	answered, _ := n.clock()
	if n.store.fault == simFromAnswer {
		sent = answered
	}
	for i := range t.charges {
		l := &t.lots[i]
		left := time.Duration(l.Window.Reset*1000-took-1) * time.Millisecond
		if l.Deadline, l.Sent = lease.Deadline(sent, left), sent; n.store.fault == simFastStore {
			l.Deadline = sent + left
		}
		if t.entries[i] != nil {
			t.entries[i].place.Store(&leasedPlace{name: string(t.charges[i].Key), slot: noSlot})
		}
	}
	n.leases.ahead.learn(took*int64(time.Millisecond), sent, answered)
	return nil
}

func (n *simProcess) giveBack(ctx context.Context, e *leased, l lease.Lot) (int64, bool) {
	if !n.travel(ctx) {
		return 0, false
	}
	count, ok := n.store.giveBack(e.place.Load().name, l)
	if n.store.fault == simReturnTwice {
		n.store.giveBack(e.place.Load().name, l)
	}
	return count, n.travel(ctx) && ok
}

func (n *simProcess) lasts(_ *leased, epoch uint64) bool { return epoch == n.epoch.Load() }

func (n *simProcess) outlives(_ *leased, epoch uint64) bool { return epoch > n.other.Load() }

func (n *simProcess) answers() bool { return !n.away.Load() }

func (n *simProcess) prepare(*leaseTake) bool { return true }

func (n *simProcess) gaveUp(error) {}

func (n *simProcess) reaches(ctx context.Context, _ *leased) bool {
	there := n.travel(ctx)
	return there && n.travel(ctx)
}

// lose puts the store out of reach for a time: the connection has ended. Then there is another one.
func (n *simNode) lose(ctx context.Context, length time.Duration) {
	if n.away.Swap(true) {
		return
	}
	n.epoch.Add(1)
	_ = wait.For(ctx, length)
	n.other.Store(n.epoch.Add(1) - 1)
	n.away.Store(false)
}

func simHash(c *weir.Charge) hash {
	h := fnv.New64a()
	h.Write(c.Key)
	return hash{hi: h.Sum64(), lo: h.Sum64()}
}

// take is Store.Take and, if that fails, TakeLeased.
func (n *simNode) take(charges []weir.Charge) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	var r weir.Receipt
	t := &leaseTake{charges: charges, r: &r}
	for i := range charges {
		t.hashes[i] = simHash(&charges[i])
	}
	n.store.count(&n.store.offered)
	a := n.now.Load().leases
	if !a.spend(charges, &t.hashes, &r) {
		held, wishes := a.look(t)
		if a.take(ctx, t, held, wishes) != nil && !(spendsPocket(charges) && a.spend(charges, &t.hashes, &r)) {
			return
		}
	}
	if n.away.Load() {
		n.store.count(&n.store.away)
	}
	for i := range charges {
		n.store.mu.Lock()
		if used := r.Used[i]; used.Count < 0 || used.Count > charges[i].Limit {
			n.store.fail("a count of %d of %d was shown", used.Count, charges[i].Limit)
		}
		// A node's clock may have gained some milliseconds since the last answer.
		if reset, latest := r.Used[i].Reset, time.Now().Add(100*time.Millisecond).Unix(); r.Now > latest || reset > 0 && r.Now >= reset {
			n.store.fail("a time of %d was shown at %d or before, and a reset at %d", r.Now, latest, reset)
		}
		n.store.mu.Unlock()
		if r.Allowed {
			n.store.spent(&charges[i], r.Used[i], r.Ticket.At, r.Leased)
		}
	}
	if r.Allowed {
		n.store.count(&n.store.admitted)
		if n.admitted != nil {
			n.admitted()
		}
	} else {
		n.store.count(&n.store.refused)
	}
}

// A simKeyPlan is one limiter of a simulation: its windows, and how often nodes send requests.
type simPlan struct {
	charges []weir.Charge
	every   []time.Duration // by node, the mean time between two requests
}

// A simWorld is what a seed decides.
type simWorld struct {
	store   *simStore
	how     Leasing
	nodes   []*simNode
	plans   []simPlan
	trouble *rand.Rand
}

func newSimWorld(seed uint64, fault simFault) *simWorld {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &simWorld{store: &simStore{seed: seed, fault: fault, keys: make(map[string]*simKey)}, how: LeasesAuto, trouble: rand.New(rand.NewPCG(seed, 2))}
	if r.IntN(2) == 0 {
		w.how = LeasesEager
	}
	for i := range 1 + r.Uint64N(4) {
		n := &simNode{store: w.store, index: i, start: time.Now(), drift: (2*r.Float64() - 1) / 1000, delay: time.Duration(1 + r.Int64N(int64(30*time.Millisecond)))}
		if r.IntN(2) == 0 {
			n.lost = r.Float64() / 20
		}
		if r.IntN(2) == 0 {
			// the slowest clock there may be, and close to the store: nothing hides that it is slow
			n.drift, n.delay = -lease.Drift/1e6, time.Millisecond
		}
		n.epoch.Store(1)
		n.boot(w.how)
		w.nodes = append(w.nodes, n)
	}
	for i := range 1 + r.IntN(3) {
		var p simPlan
		onFailure := weir.FailureModes()[r.IntN(len(weir.FailureModes()))]
		cost, per, limit := 1+r.Int64N(3), 1+r.Int64N(20), 5+r.Int64N(int64(1)<<(3+r.IntN(8)))
		for j := range 1 + r.IntN(2) {
			c := weir.Charge{Key: fmt.Append(nil, "key ", i, " window ", j), Limit: limit << j, Per: per << (2 * j), Cost: cost, OnFailure: onFailure}
			p.charges = append(p.charges, c)
		}
		for range w.nodes {
			// from a tenth of the limit to twice the limit together
			mean := float64(per) / float64(limit) * float64(cost) * float64(len(w.nodes)) / (0.1 + 2*r.Float64())
			p.every = append(p.every, time.Duration(mean*float64(time.Second)))
		}
		w.plans = append(w.plans, p)
	}
	return w
}

// boot starts a node without pockets; what an earlier process of it had is lost.
func (n *simNode) boot(how Leasing) {
	if n.end != nil {
		n.end()
	}
	if before := n.now.Load(); before != nil {
		before.dead.Store(true)
	}
	p := &simProcess{simNode: n}
	p.leases = newLeases(p, n.clock, how)
	n.now.Store(p)
	var ctx context.Context
	ctx, n.end = context.WithCancel(context.Background())
	go p.leases.keepReturning(ctx)
	go p.leases.keepDoing(ctx)
}

// run runs the world for a time.
func (w *simWorld) run(length time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	var all sync.WaitGroup
	for i, n := range w.nodes {
		for j, p := range w.plans {
			r := rand.New(rand.NewPCG(w.store.seed, uint64(3+i*len(w.plans)+j)))
			all.Go(func() {
				var requests sync.WaitGroup
				for wait.For(ctx, below(r, 2*p.every[i])) == nil {
					requests.Go(func() { n.take(slices.Clone(p.charges)) })
				}
				requests.Wait()
			})
		}
	}
	all.Go(func() {
		for wait.For(ctx, below(w.trouble, 20*time.Second)) == nil {
			w.harm(ctx)
		}
	})
	all.Wait()
	// for answers that are late; nodes look for idle units after every quarter of a second
	_ = wait.For(context.Background(), 2*maxLate+time.Millisecond)
	for _, n := range w.nodes {
		n.end()
		synctest.Wait()
		n.now.Load().leases.returnAll(context.Background())
	}
}

// harm does something to a node, or resets a window.
func (w *simWorld) harm(ctx context.Context) {
	r := w.trouble
	n, what, c := w.nodes[r.IntN(len(w.nodes))], r.IntN(5), w.plans[r.IntN(len(w.plans))].charges
	switch what {
	case 0: // the connection is another one
		before := n.epoch.Add(1) - 1
		if r.IntN(2) == 0 { // otherwise this was another connection than that of the store
			n.other.Store(before)
		}
	case 1: // killed: nothing goes back
		n.boot(w.how)
	case 2:
		n.lose(ctx, below(r, 10*time.Second))
	default: // an operator resets a window, elsewhere
		if r.IntN(2) == 0 {
			w.store.awaitOpened(ctx, &c[0])
		}
		w.store.mu.Lock()
		w.store.key(&c[0]).reset()
		w.store.mu.Unlock()
		_ = wait.For(ctx, below(r, 2*time.Second))
		for _, n := range w.nodes {
			n.now.Load().leases.returnAll(ctx)
		}
	}
}

// simulate runs the world of a seed, and returns what went wrong.
func simulate(t *testing.T, seed uint64, fault simFault, length time.Duration) (wrong []string, s *simStore, served int64) {
	synctest.Test(t, func(t *testing.T) {
		w := newSimWorld(seed, fault)
		w.run(length)
		wrong, s = w.store.wrong, w.store
		for _, n := range w.nodes {
			served += n.now.Load().leases.served.Load()
		}
	})
	return wrong, s, served
}

// However nodes lease, and whatever happens to them, to messages and to clocks: no window admits
// more than its limit, no unit is given out after its reset, and none goes back twice.
func TestNoSeedAdmitsAUnitTooMany(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 3
	}
	var served, asks, refused, away, early int64
	for seed := range seeds {
		wrong, s, leased := simulate(t, seed, simSound, 2*time.Minute)
		for _, text := range wrong {
			t.Errorf("seed %d: %s", seed, text)
		}
		served, asks, refused, away, early = served+leased, asks+s.asks, refused+s.refused, away+s.away, early+s.early
	}
	t.Logf("%d takes from pockets, %d asks, %d of them for a pocket that was not empty, %d refusals; %d takes while the store was out of reach", served, asks, early, refused, away)
	if testing.Short() {
		return // with so few seeds
	}
	if served < asks/10 || refused == 0 || away == 0 || early < 100 {
		t.Errorf("%d takes were from pockets, %d of them while the store was out of reach, %d asked, %d refilled a pocket early, %d were refused: this proves little", served, away, asks, early, refused)
	}
}

// A failure is a seed: it can be run again.
func TestASeedIsOneRun(t *testing.T) {
	for seed := range uint64(10) {
		_, first, served := simulate(t, seed, simSound, 2*time.Minute)
		_, again, servedAgain := simulate(t, seed, simSound, 2*time.Minute)
		if first.numbers() != again.numbers() || served != servedAgain {
			t.Errorf("seed %d: %+v, %d, and then %+v, %d", seed, first.numbers(), served, again.numbers(), servedAgain)
		}
	}
}

// The simulation can fail: it finds each planted fault.
func TestTheSimulationFindsPlantedFaults(t *testing.T) {
	for _, fault := range []simFault{simFromAnswer, simFastStore, simUncharged, simUncut, simReturnTwice, simReturnAnyReset, simReturnAnyGen, simMarkEnds} {
		t.Run(string(fault), func(t *testing.T) {
			for seed := range uint64(50) {
				if wrong, _, _ := simulate(t, seed, fault, 2*time.Minute); len(wrong) > 0 {
					t.Logf("seed %d: %s", seed, wrong[0])
					return
				}
			}
			t.Error("no seed finds it")
		})
	}
}
