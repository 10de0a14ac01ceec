package failover

import (
	"maps"
	"time"

	"github.com/weirlimit/weir"
)

const (
	notedWindows = 1 << 18 // that are noted at most,
	notedBytes   = 32 << 20
	notedLooks   = 16 // windows that are looked at for one that has ended, where there are so many

	noteSlack = 2 * time.Second // by which two clocks may have gone differently: seconds are whole, and round trips take time
)

// notes are the windows in which units were counted here that the store is owed, at most notedWindows of them with notedBytes
// of keys. The zero value is empty.
type notes struct {
	windows map[string]*note // those that can still change
	held    map[string]*note // those whose machine did not answer: they can change too
	until   time.Time        // by this process's clock, when held are tried again
	round   []*note          // those that are being given
	bytes   int              // of the keys of both
	handed  map[string]*note // those of the round that the store has not confirmed
	batch   []*note          // those of the round that next returned last
}

func (n *notes) count() int { return len(n.windows) + len(n.held) + len(n.round) }

// due reports whether something can be given now.
func (n *notes) due(local time.Time) bool {
	return len(n.windows) > 0 || len(n.held) > 0 && !local.Before(n.until)
}

type note struct {
	key   string
	spent weir.Spent // without its Key
	ends  time.Time  // when the window does, by this process's clock
	apart bool       // the store cannot count it together with the other windows of its takes: no take opens it there
}

// An instant is the same moment by two clocks: the store's as far as this process knows it, which an answer can set by minutes,
// and this process's own.
type instant struct{ store, local time.Time }

// reset returns when the window ends by the store's clock. Where that was set since the window was noted, what was left of it
// by this process's clock counts: so much its caller was told.
func (w *note) reset(now instant) int64 {
	left := w.ends.Sub(now.local)
	if set := time.Unix(w.spent.Used.Reset, 0).Sub(now.store) - left; set.Abs() > noteSlack {
		return now.store.Add(left).Unix()
	}
	return w.spent.Used.Reset
}

// add notes what a charge spent in the window that used is, and reports whether there was room for it. What was spent in
// windows that have ended is forgotten: it does no harm any more.
func (n *notes) add(c *weir.Charge, used weir.Used, now instant) bool {
	ends := now.local.Add(time.Unix(used.Reset, 0).Sub(now.store))
	w := n.windows[string(c.Key)]
	if w == nil {
		w = n.held[string(c.Key)]
	}
	if w != nil {
		switch {
		case w.reset(now) <= now.store.Unix(): // that window has ended
			w.spent.Used.Count, w.ends = 0, ends
		case w.spent.Used.Reset <= now.store.Unix(), // the clock was set to after its end, and so there is another already
			ends.Before(w.ends):
			w.ends = ends
		}
		w.spent.Used = weir.Used{Count: w.spent.Used.Count + c.Cost, Reset: used.Reset}
		return true
	}
	if n.full(len(c.Key)) && !n.tidy(now, len(c.Key)) {
		return false
	}
	if n.windows == nil {
		n.windows = make(map[string]*note)
	}
	spent := weir.Spent{Scope: c.Scope, Subject: c.Subject, Per: c.Per, Used: weir.Used{Count: c.Cost, Reset: used.Reset}}
	w = &note{key: string(c.Key), spent: spent, ends: ends}
	n.windows[w.key] = w
	n.bytes += len(w.key)
	return true
}

// setApart notes that the store cannot count a noted window with the others of its takes.
func (n *notes) setApart(key []byte) {
	for _, some := range [...]map[string]*note{n.windows, n.held} {
		if w := some[string(key)]; w != nil {
			w.apart = true
		}
	}
}

func (n *notes) full(more int) bool { return n.count() >= notedWindows || n.bytes+more > notedBytes }

// tidy looks at a few windows, forgets those that have ended, and reports whether that has made room.
func (n *notes) tidy(now instant, more int) bool {
	for _, some := range [...]map[string]*note{n.windows, n.held} {
		looks := 0
		for _, w := range some {
			n.forgetEnded(some, w, now)
			if looks++; looks == notedLooks {
				break
			}
		}
	}
	return !n.full(more)
}

// forgetEnded forgets one of some windows if it has ended, and reports whether it has.
func (n *notes) forgetEnded(some map[string]*note, w *note, now instant) bool {
	if w.reset(now) > now.store.Unix() {
		return false
	}
	delete(some, w.key)
	n.bytes -= len(w.key)
	return true
}

// begin begins a round of giving with what can be given now. Of the windows whose machine did not
// answer it tries at most some: if that machine is still silent, each batch waits for it.
func (n *notes) begin(some int, local time.Time) {
	if len(n.held) > 0 && !local.Before(n.until) {
		if n.windows == nil {
			n.windows = make(map[string]*note)
		}
		for key, w := range n.held {
			if some--; some < 0 {
				break
			}
			delete(n.held, key)
			n.windows[key] = w
		}
	}
	for _, w := range n.windows {
		n.round = append(n.round, w)
	}
	if len(n.handed) == 0 {
		n.handed = n.windows
	} else {
		maps.Copy(n.handed, n.windows)
	}
	n.windows = nil
}

// owes reports whether a window that has not ended has units that the store was not given, or has
// not confirmed.
func (n *notes) owes(key []byte, now instant) bool {
	for _, some := range [...]map[string]*note{n.windows, n.held} {
		if w := some[string(key)]; w != nil && !w.apart && !n.forgetEnded(some, w, now) {
			return true
		}
	}
	w := n.handed[string(key)]
	return w != nil && !w.apart && w.reset(now) > now.store.Unix()
}

// hold keeps a window that next returned, and that was not sent, until its machine is tried again.
func (n *notes) hold(key []byte, until, local time.Time) {
	w := n.handed[string(key)]
	n.until = until
	if newer := n.windows[w.key]; newer != nil { // it was noted again meanwhile
		delete(n.windows, w.key)
		n.bytes -= len(w.key)
		if w.ends.After(local) {
			newer.spent.Used.Count += w.spent.Used.Count
			newer.spent.Used.Reset = min(newer.spent.Used.Reset, w.spent.Used.Reset)
			if w.ends.Before(newer.ends) {
				newer.ends = w.ends
			}
		}
		w = newer
	}
	if n.held == nil {
		n.held = make(map[string]*note)
	}
	n.held[w.key] = w
	n.bytes += len(w.key)
}

// landed notes that the store has answered what next returned last, or never will.
func (n *notes) landed() {
	for _, w := range n.batch {
		delete(n.handed, w.key)
	}
	n.batch = nil
}

// next takes the next windows of the round away, at most most, and returns those that are open at now, with the units in them.
func (n *notes) next(most int, now instant) (spent []weir.Spent, units int64) {
	batch := n.round[:min(most, len(n.round))]
	n.round, n.batch = n.round[len(batch):], batch
	for _, w := range batch {
		n.bytes -= len(w.key)
		if reset := w.reset(now); reset > now.store.Unix() {
			w.spent.Key, w.spent.Used.Reset = []byte(w.key), reset
			spent = append(spent, w.spent)
			units += w.spent.Used.Count
		}
	}
	if len(n.round) == 0 {
		n.round = nil
	}
	return spent, units
}

// forget forgets what was spent in one window, unless it is being given already.
func (n *notes) forget(key []byte) {
	for _, some := range [...]map[string]*note{n.windows, n.held} {
		if _, ok := some[string(key)]; ok {
			delete(some, string(key))
			n.bytes -= len(key)
		}
	}
}

// drop forgets everything, and returns how many units there were in windows that are open at now.
func (n *notes) drop(now instant) (units int64) {
	n.until = time.Time{}
	n.begin(len(n.held), now.local)
	_, units = n.next(n.count(), now)
	n.landed()
	return units
}
