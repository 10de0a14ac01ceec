package failover

import (
	"maps"
	"time"

	"github.com/weirlimit/weir"
)

const (
	// maxOwedWindows and maxOwedBytes bound the windows that are kept, and the bytes of their keys.
	maxOwedWindows = 1 << 18
	maxOwedBytes   = 32 << 20
	// maxEvictionLooks is the number of windows that are examined for one that has ended, if there
	// is no room for another.
	maxEvictionLooks = 16

	// clockSlack is a difference of two clocks that does not mean that one was set: seconds are
	// whole, and round trips take time.
	clockSlack = 2 * time.Second
)

// owed are the windows whose units were counted here and that the store has not received. The zero
// value is empty.
type owed struct {
	windows   map[string]*owedWindow // those that can still grow
	held      map[string]*owedWindow // those whose machine did not answer; they can grow too
	heldUntil time.Time              // by this process's clock: when held are tried again
	bytes     int                    // of the keys of windows, held and round
	rounds    uint64                 // that have begun

	round []*owedWindow // those of the current round that were not sent yet
	batch []*owedWindow // those that nextBatch returned last
	// unconfirmed are those of the round that the store has not confirmed yet.
	unconfirmed map[string]*owedWindow
}

// An owedWindow is one window with the units that the store is owed.
type owedWindow struct {
	key   string
	spent weir.Spent // without its Key
	ends  time.Time  // the end of the window, by this process's clock
	// apart means that the store cannot count the window together with the other windows of its
	// takes. So no take opens it at the store.
	apart bool
	// since is the number of rounds that had begun when its first unit was added. No unit that was
	// added in that round or later has been sent.
	since uint64
}

// An instant is one moment by two clocks: the store's, as far as this process knows it, and this
// process's own. An answer of the store can set the first by minutes.
type instant struct{ store, local time.Time }

// reset returns the end of the window by the store's clock. If that clock was set since the window
// was recorded, the window keeps the time that it had left by this process's clock, because its
// caller was given that reset. A window that ends by the store's clock keeps its reset: if it ended
// earlier, its caller would have another budget in the same span.
func (w *owedWindow) reset(now instant) int64 {
	if w.spent.Ends != nil {
		return w.spent.Used.Reset
	}
	left := w.ends.Sub(now.local)
	if set := time.Unix(w.spent.Used.Reset, 0).Sub(now.store) - left; set.Abs() > clockSlack {
		return now.store.Add(left).Unix()
	}
	return w.spent.Used.Reset
}

func (w *owedWindow) ended(now instant) bool { return w.reset(now) <= now.store.Unix() }

func (o *owed) count() int { return len(o.windows) + len(o.held) + len(o.round) }

// due reports whether something can be given now.
func (o *owed) due(local time.Time) bool {
	return len(o.windows) > 0 || len(o.held) > 0 && !local.Before(o.heldUntil)
}

// add records the units of a charge. used is its window after the charge. add returns false if
// there is no room.
func (o *owed) add(c *weir.Charge, used weir.Used, now instant) bool {
	ends := now.local.Add(time.Unix(used.Reset, 0).Sub(now.store))
	w := o.windows[string(c.Key)]
	if w == nil {
		w = o.held[string(c.Key)]
	}
	if w != nil {
		switch {
		case w.ended(now): // its units are no longer owed
			w.spent.Used.Count, w.ends, w.since = 0, ends, o.rounds
		case w.spent.Used.Reset <= now.store.Unix(), // the clock was set: this is the next window
			ends.Before(w.ends):
			w.ends = ends
		}
		w.spent.Used = weir.Used{Count: w.spent.Used.Count + c.Cost, Reset: used.Reset}
		return true
	}
	if o.full(len(c.Key)) && !o.evict(now, len(c.Key)) {
		return false
	}
	if o.windows == nil {
		o.windows = make(map[string]*owedWindow)
	}
	spent := weir.Spent{
		Scope: c.Scope, Subject: c.Subject, Per: c.Per, Ends: c.Ends, Used: weir.Used{Count: c.Cost, Reset: used.Reset},
	}
	w = &owedWindow{key: string(c.Key), spent: spent, ends: ends, since: o.rounds}
	o.windows[w.key] = w
	o.bytes += len(w.key)
	return true
}

// settle changes the units of a take that was counted here in the given round. It returns false,
// and changes nothing, if the store may have them already.
func (o *owed) settle(c *weir.Change, round uint64, now instant) bool {
	for _, set := range [...]map[string]*owedWindow{o.windows, o.held} {
		w := set[string(c.Key)]
		if w == nil || w.since > round || w.ended(now) {
			continue
		}
		w.spent.Used.Count = max(w.spent.Used.Count+c.Units, 0)
		return true
	}
	return false
}

// setApart marks a window that the store cannot count together with the others of its takes.
func (o *owed) setApart(key []byte) {
	for _, set := range [...]map[string]*owedWindow{o.windows, o.held} {
		if w := set[string(key)]; w != nil {
			w.apart = true
		}
	}
}

func (o *owed) full(more int) bool {
	return o.count() >= maxOwedWindows || o.bytes+more > maxOwedBytes
}

// evict drops some windows that have ended, and reports whether there is room now.
func (o *owed) evict(now instant, more int) bool {
	for _, set := range [...]map[string]*owedWindow{o.windows, o.held} {
		looks := 0
		for _, w := range set {
			o.dropEnded(set, w, now)
			if looks++; looks == maxEvictionLooks {
				break
			}
		}
	}
	return !o.full(more)
}

// dropEnded drops a window of set that has ended, and reports whether it did.
func (o *owed) dropEnded(set map[string]*owedWindow, w *owedWindow, now instant) bool {
	if !w.ended(now) {
		return false
	}
	delete(set, w.key)
	o.bytes -= len(w.key)
	return true
}

// has reports whether a window that has not ended has units that the store did not receive, or did
// not confirm.
func (o *owed) has(key []byte, now instant) bool {
	for _, set := range [...]map[string]*owedWindow{o.windows, o.held} {
		if w := set[string(key)]; w != nil && !w.apart && !o.dropEnded(set, w, now) {
			return true
		}
	}
	w := o.unconfirmed[string(key)]
	return w != nil && !w.apart && !w.ended(now)
}

// drop drops one window, unless it is part of the round.
func (o *owed) drop(key []byte) {
	for _, set := range [...]map[string]*owedWindow{o.windows, o.held} {
		if _, ok := set[string(key)]; ok {
			delete(set, string(key))
			o.bytes -= len(key)
		}
	}
}

// beginRound begins a round with everything that can be given now. It includes at most maxHeld of
// the held windows: if their machine is still silent, each batch waits for it.
func (o *owed) beginRound(maxHeld int, local time.Time) {
	o.rounds++
	if len(o.held) > 0 && !local.Before(o.heldUntil) {
		if o.windows == nil {
			o.windows = make(map[string]*owedWindow)
		}
		for key, w := range o.held {
			if maxHeld--; maxHeld < 0 {
				break
			}
			delete(o.held, key)
			o.windows[key] = w
		}
	}
	for _, w := range o.windows {
		o.round = append(o.round, w)
	}
	if len(o.unconfirmed) == 0 {
		o.unconfirmed = o.windows
	} else {
		maps.Copy(o.unconfirmed, o.windows)
	}
	o.windows = nil
}

// nextBatch removes up to maxWindows windows from the round. It returns those that have not ended,
// and the number of their units.
func (o *owed) nextBatch(maxWindows int, now instant) (spent []weir.Spent, units int64) {
	batch := o.round[:min(maxWindows, len(o.round))]
	o.round, o.batch = o.round[len(batch):], batch
	for _, w := range batch {
		o.bytes -= len(w.key)
		if reset := w.reset(now); reset > now.store.Unix() {
			w.spent.Key, w.spent.Used.Reset = []byte(w.key), reset
			spent = append(spent, w.spent)
			units += w.spent.Used.Count
		}
	}
	if len(o.round) == 0 {
		o.round = nil
	}
	return spent, units
}

// endBatch records that the store has answered the last batch, or never will.
func (o *owed) endBatch() {
	for _, w := range o.batch {
		delete(o.unconfirmed, w.key)
	}
	o.batch = nil
}

// hold keeps a window of the last batch that was not sent, until its machine is tried again.
func (o *owed) hold(key []byte, until, local time.Time) {
	w := o.unconfirmed[string(key)]
	o.heldUntil = until
	if newer := o.windows[w.key]; newer != nil { // units were added meanwhile
		delete(o.windows, w.key)
		o.bytes -= len(w.key)
		if w.ends.After(local) {
			newer.since = w.since
			newer.spent.Used.Count += w.spent.Used.Count
			newer.spent.Used.Reset = min(newer.spent.Used.Reset, w.spent.Used.Reset)
			if w.ends.Before(newer.ends) {
				newer.ends = w.ends
			}
		}
		w = newer
	}
	if o.held == nil {
		o.held = make(map[string]*owedWindow)
	}
	o.held[w.key] = w
	o.bytes += len(w.key)
}

// dropAll drops everything, and returns the number of units in windows that have not ended.
func (o *owed) dropAll(now instant) (units int64) {
	o.heldUntil = time.Time{}
	o.beginRound(len(o.held), now.local)
	_, units = o.nextBatch(o.count(), now)
	o.endBatch()
	return units
}
