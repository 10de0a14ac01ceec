package weir

const (
	notedWindows = 1 << 18 // that are noted at most,
	notedBytes   = 32 << 20
	notedLooks   = 16 // windows that are looked at for one that has ended, where there are so many
)

// notes are the windows in which units were counted here that the store is owed, at most notedWindows of them with notedBytes
// of keys. The zero value is empty.
type notes struct {
	windows map[string]*note // those that can still change
	round   []*note          // those that are being given
	bytes   int              // of the keys of both
}

func (n *notes) count() int { return len(n.windows) + len(n.round) }

type note struct {
	key   string
	spent Spent // without its Key
}

// add notes what a charge spent in the window that used is, at now, and reports whether there was room for it. What was spent in
// windows that have ended is forgotten: it does no harm any more.
func (n *notes) add(c *Charge, used Used, now int64) bool {
	if w := n.windows[string(c.Key)]; w != nil {
		w.spent.Used = Used{Count: w.spent.Used.At(now, c.Per).Count + c.Cost, Reset: used.Reset}
		return true
	}
	if n.full(len(c.Key)) && !n.tidy(now, len(c.Key)) {
		return false
	}
	if n.windows == nil {
		n.windows = make(map[string]*note)
	}
	w := &note{string(c.Key), Spent{Scope: c.Scope, Subject: c.Subject, Per: c.Per, Used: Used{Count: c.Cost, Reset: used.Reset}}}
	n.windows[w.key] = w
	n.bytes += len(w.key)
	return true
}

func (n *notes) full(more int) bool { return n.count() >= notedWindows || n.bytes+more > notedBytes }

// tidy looks at a few windows, forgets those that have ended, and reports whether that has made room.
func (n *notes) tidy(now int64, more int) bool {
	looks := 0
	for key, w := range n.windows {
		if w.spent.Used.Reset <= now {
			delete(n.windows, key)
			n.bytes -= len(key)
		}
		if looks++; looks == notedLooks {
			break
		}
	}
	return !n.full(more)
}

// begin begins a round of giving, with what there is now.
func (n *notes) begin() {
	for _, w := range n.windows {
		n.round = append(n.round, w)
	}
	n.windows = nil
}

// next takes the next windows of the round away, at most most, and returns those that are open at now, with the units in them.
func (n *notes) next(most int, now int64) (spent []Spent, units int64) {
	batch := n.round[:min(most, len(n.round))]
	n.round = n.round[len(batch):]
	for _, w := range batch {
		n.bytes -= len(w.key)
		if w.spent.Used.Reset > now {
			w.spent.Key = []byte(w.key)
			spent = append(spent, w.spent)
			units += w.spent.Used.Count
		}
	}
	if len(n.round) == 0 {
		n.round = nil
	}
	return spent, units
}

// drop forgets everything, and returns how many units there were in windows that are open at now.
func (n *notes) drop(now int64) (units int64) {
	n.begin()
	_, units = n.next(n.count(), now)
	return units
}
