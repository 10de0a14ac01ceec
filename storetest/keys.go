package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// coherent returns what is wrong with a receipt by itself, whatever other takes did meanwhile, or
// nil. Only if units were given back can a window be open and empty.
func coherent(in []weir.Charge, r weir.Receipt, settles bool) error {
	short := false
	for i, c := range in {
		u := r.Used[i]
		open := u.Reset != 0 || c.Held
		switch {
		case c.Held && u.Reset != 0:
			return fmt.Errorf("charge %d: slots that end at %d", i, u.Reset)
		case u.Count < 0, u.Count > 0 && !open, u.Count == 0 && open && !settles:
			return fmt.Errorf("charge %d: a count of %d in a window that ends at %d", i, u.Count, u.Reset)
		case u.Reset != 0 && (u.Reset <= r.Now || u.Reset > c.End(r.Now)):
			return fmt.Errorf("charge %d: at %d a window of at most %d s ends at %d", i, r.Now, c.Per, u.Reset)
		case r.Allowed && c.Cost > 0 && (u.Count < c.Cost || u.Count > c.Limit):
			return fmt.Errorf("charge %d: allowed, and after %d units %d of %d are spent", i, c.Cost, u.Count, c.Limit)
		case r.Allowed && c.Cost == weir.Gate && u.Count >= c.Limit:
			return fmt.Errorf("charge %d: allowed by a gate, and %d of %d are spent", i, u.Count, c.Limit)
		}
		short = short || !u.Fits(c.Cost, c.Limit)
	}
	if !r.Allowed && !short {
		return fmt.Errorf("refused, and every charge fits into what is left")
	}
	return nil
}

// A ledger holds the receipts of takes by key and reset, which together identify a window. While
// the clock only moves forward, only an exact store's receipts balance.
type ledger map[string]map[int64]*account

type account struct {
	per, limit int64
	spent      []span
	seen       int64 // the highest count in any receipt
}

// A span is the units of one take: those after from, up to to.
type span struct{ from, to, now int64 }

func (l ledger) add(in []weir.Charge, out weir.Receipt) {
	for i, c := range in {
		u := out.Used[i]
		if u.Reset == 0 {
			continue
		}
		windows := l[string(c.Key)]
		if windows == nil {
			windows = map[int64]*account{}
			l[string(c.Key)] = windows
		}
		a := windows[u.Reset]
		if a == nil {
			a = &account{per: c.Per, limit: c.Limit}
			windows[u.Reset] = a
		}
		a.seen = max(a.seen, u.Count)
		if out.Allowed && c.Cost > 0 {
			a.spent = append(a.spent, span{u.Count - c.Cost, u.Count, out.Now})
		}
	}
}

func (l ledger) merge(other ledger) {
	for key, windows := range other {
		if l[key] == nil {
			l[key] = windows
			continue
		}
		for reset, a := range windows {
			if mine := l[key][reset]; mine != nil {
				mine.seen, mine.spent = max(mine.seen, a.seen), append(mine.spent, a.spent...)
			} else {
				l[key][reset] = a
			}
		}
	}
}

// balance returns an error for a window that was counted wrongly, or nil.
func (l ledger) balance() error {
	for key, windows := range l {
		last := int64(0)
		for _, reset := range slices.Sorted(maps.Keys(windows)) {
			a := windows[reset]
			if err := a.balance(reset); err != nil {
				return fmt.Errorf("key %q, the window that ends at %d: %w", key, reset, err)
			}
			if reset-a.per < last {
				return fmt.Errorf("key %q: a window began at %d, the one before it ends at %d", key, reset-a.per, last)
			}
			last = reset
		}
	}
	return nil
}

// balance checks that the takes of one window spent its units in sequence, none twice and none
// skipped.
func (a *account) balance(reset int64) error {
	slices.SortFunc(a.spent, func(x, y span) int { return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(x.to, y.to)) })
	at := span{now: reset - a.per}
	for _, s := range a.spent {
		switch {
		case s.from != at.to:
			return fmt.Errorf("units %d to %d were spent after unit %d", s.from+1, s.to, at.to)
		case s.now < at.now:
			return fmt.Errorf("units %d to %d were spent at %d, those before them at %d", s.from+1, s.to, s.now, at.now)
		case at.to == 0 && s.now != at.now:
			return fmt.Errorf("it was opened at %d and is %d s long", s.now, a.per)
		}
		at = s
	}
	if at.to != a.seen || at.to > a.limit {
		return fmt.Errorf("%d units were spent, %d were told, %d is the limit", at.to, a.seen, a.limit)
	}
	return nil
}

// standing returns the standing of a key at now according to the ledger.
func (l ledger) standing(key []byte, now int64) weir.Used {
	for reset, a := range l[string(key)] {
		if reset > now {
			return weir.Used{Count: a.seen, Reset: reset}
		}
	}
	return weir.Used{}
}

// manyKeys opens thousands of keys from several callers at once, besides keys that are already
// spent and some that all callers want, while windows end: each key and window balances to the
// unit.
func manyKeys(h *harness) {
	for round := range 4 {
		manyKeysOf(h, round)
	}
}

func manyKeysOf(h *harness, round int) {
	const batches, callers = 20, 6
	books, keys := ledger{}, newCast(round)
	for batch := range batches {
		var each [callers]ledger
		fresh := keys.grow()
		together(callers, func(i int) {
			each[i] = ledger{}
			random := rand.New(rand.NewPCG(uint64(batch), uint64(i)))
			// in the same order for all callers, so that several open a key at once
			for _, c := range fresh {
				in := keys.mixed(random, c)
				each[i].add(in, h.take(in...))
				if random.IntN(64) == 0 {
					h.advance(700 * time.Millisecond)
				}
			}
		})
		for _, l := range each {
			books.merge(l)
		}
	}
	if err := books.balance(); err != nil {
		h.Fatalf("round %d: %v", round, err)
	}
	for _, c := range slices.Concat(keys.opened, keys.wanted) {
		c.Cost = 0
		if r := h.take(c); r.Used[0] != books.standing(c.Key, r.Now) {
			h.Fatalf("key %q stands at %+v, its takes were told %+v", c.Key, r.Used[0], books.standing(c.Key, r.Now))
		}
	}
}

// A cast is the windows of manyKeys.
type cast struct {
	name   string
	opened []weir.Charge // opened earlier by some caller
	wanted []weir.Charge // by all callers
}

func newCast(round int) *cast {
	c := &cast{name: fmt.Sprint(round)}
	for i := range 4 {
		c.wanted = append(c.wanted, charge(fmt.Sprint(c.name, "/wanted/", i), 30, 3*time.Second, 1))
	}
	return c
}

// grow adds new keys: half of their windows end soon, the others outlive the test.
func (c *cast) grow() (fresh []weir.Charge) {
	const batch = 100
	for i := range batch {
		per := []time.Duration{4 * time.Second, 24 * time.Hour}[i%2]
		fresh = append(fresh, charge(fmt.Sprint(c.name, "/", len(c.opened)+i), 3, per, 1))
	}
	c.opened = append(c.opened, fresh...)
	return fresh
}

// mixed returns one alone, or with an older or wanted key before or after it.
func (c *cast) mixed(random *rand.Rand, one weir.Charge) []weir.Charge {
	other := c.opened[random.IntN(len(c.opened))]
	switch random.IntN(4) {
	case 0:
		return charges{one}
	case 1:
		other = c.wanted[random.IntN(len(c.wanted))]
		other.Cost = 1 + random.Int64N(2)
	}
	switch {
	case string(other.Key) == string(one.Key):
		return charges{one}
	case random.IntN(2) == 0:
		return charges{other, one}
	}
	return charges{one, other}
}

// totalsWhenTheClockJumps has callers contend while the clock is set back again and again by up to
// an hour. A window ends only after the clock has gone forward by its whole length, which bounds
// the total.
func totalsWhenTheClockJumps(h *harness) {
	const callers, takes, limit, per = 6, 400, 20, 5
	var forward atomic.Int64
	var admitted [2]atomic.Int64
	together(callers, func(i int) {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		for range takes {
			in := charges{charge("first", limit, per*time.Second, 1), charge("second", limit, per*time.Second, 1)}
			one := random.IntN(3) // 2: both
			if one < 2 {
				in = in[one : one+1]
			}
			if h.take(in...).Allowed {
				for k := range admitted {
					if one == 2 || one == k {
						admitted[k].Add(1)
					}
				}
			}
			switch random.IntN(24) {
			case 0:
				forward.Add(1)
				h.advance(time.Second)
			case 1:
				h.advance(-time.Duration(random.IntN(3600)) * time.Second)
			}
		}
	})
	for k := range admitted {
		limitOfTotal := limit * (1 + forward.Load()/per)
		if n := admitted[k].Load(); n > limitOfTotal {
			h.Errorf("window %d admitted %d while the clock went forward by %d s, at most %d fit", k, n, forward.Load(), limitOfTotal)
		}
	}
}

// nowNeverRunsBackwards passes a baton between goroutines. The holder takes, and its receipt shows
// no earlier time than the take before, while others move the clock forward and open keys.
func nowNeverRunsBackwards(h *harness) {
	const chains, links, takes = 3, 3, 150
	var batons [chains]baton
	together(chains*links, func(i int) {
		random := rand.New(rand.NewPCG(2, uint64(i)))
		b := &batons[i%chains]
		for n := range takes {
			who := "contended"
			if random.IntN(4) == 0 {
				who = fmt.Sprintf("link %d take %d", i, n)
			}
			if before, now := b.take(h, charge(who, 1<<20, 2*time.Second, 1)); now < before {
				h.Errorf("a take was told that it is %d, after one that had returned was told %d", now, before)
				return
			}
			h.advance(time.Duration(random.IntN(50)) * time.Millisecond)
		}
	})
}

// A baton is held by one goroutine at a time.
type baton struct {
	mu  sync.Mutex
	now int64 // of the last receipt
}

func (b *baton) take(h *harness, c weir.Charge) (before, now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, b.now = b.now, h.take(c).Now
	return before, b.now
}
