package redisstore

import (
	"slices"
	"sync"
	"sync/atomic"
)

// A journal is what the server has counted for this process lately, so that it can be counted again
// if a replica takes the server's place that had not received it. It is kept in parts: a part holds
// what was answered between two looks at the server's replication offset.
//
// Redis numbers the bytes that a master sends to its replicas, its offset, under the name of its
// history. A promoted replica begins a history of its own, and states how that of its master ended
// for it: the first offset that it has not received. So a part has arrived if the offset that was
// read after its end had been received, and is missing if the offset that was read before its
// beginning had not. What is between may be either, and counts as missing: rather twice than never.
type journal struct {
	on atomic.Bool // whether the server has replicas, or had some lately

	mu       sync.Mutex
	parts    []*journalPart // by time; the last is open. Never empty
	windows  int            // in all parts
	promoted map[int]uint64 // by slot, the epoch of the last promotion of a replica
	late     []journalEntry // what was noted after such a promotion, and may be from before it
	seen     int64          // when a master was last seen, by this process's clock
}

// A journalPart is what was answered between two looks.
type journalPart struct {
	opened  int64                    // this process's clock
	offsets map[string]int64         // by history, of masters seen at its end; nil: none
	ended   map[string]bool          // histories whose masters were seen as replicas then
	windows map[string]*journalEntry // by name; nil once it was dropped
}

// A journalEntry is what one part has of a window.
type journalEntry struct {
	name       string
	slot       int // on a cluster; otherwise noSlot
	per, reset int64
	spent      int64 // by takes, with what they have leased, and by gives
	back       int64 // what settlements have given back
}

// unitsOf returns what the entries have spent.
func unitsOf(all []journalEntry) (units int64) {
	for i := range all {
		units += all[i].spent
	}
	return units
}

// noSlot is what slotIn returns if the server is no cluster.
const noSlot = -1

// A slotSet is slots of a cluster, or noSlot.
type slotSet map[int]bool

const (
	// journalLasts is how long a part is kept, in ns, while masters answer: longer than one goes on
	// counting that was replaced. While none answers, nothing is dropped.
	journalLasts = int64(60e9)
	// Parts of journalFine or older are merged into some of journalCoarse. A living master is told
	// within two seconds that another has taken its place, a busy one later.
	journalFine, journalCoarse = int64(8e9), int64(500e6)
	// awayLasts is how long a machine of a cluster that is not seen may only be slow.
	awayLasts = int64(1e9)
	// maxJournal bounds the windows of all parts: some 20 MiB.
	maxJournal = 1 << 17
)

func newJournal() *journal {
	return &journal{parts: []*journalPart{newJournalPart(0)}, promoted: make(map[int]uint64)}
}

func newJournalPart(now int64) *journalPart {
	return &journalPart{opened: now, windows: make(map[string]*journalEntry)}
}

// noteSpent notes units that the server has counted for a take, or a give, of an epoch. now is the
// server's second. It reports whether the journal was empty.
func (j *journal) noteSpent(epoch uint64, now int64, e journalEntry) (first bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if epoch <= j.promoted[e.slot] {
		j.late = append(j.late, e)
		return false
	}
	first = j.windows == 0
	j.add(j.parts[len(j.parts)-1], now, e)
	return first
}

// noteBack notes units that a settlement has given back to a window. p is what sending returned
// before it was sent.
func (j *journal) noteBack(p *journalPart, now int64, e journalEntry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if p.windows != nil {
		j.add(p, now, e)
	}
}

func (j *journal) add(p *journalPart, now int64, e journalEntry) {
	if at := p.windows[e.name]; at != nil {
		at.add(now, e)
		return
	}
	for i := 0; j.windows >= maxJournal; i++ { // the oldest are the likeliest to have arrived
		j.windows -= len(j.parts[i].windows)
		clear(j.parts[i].windows)
	}
	p.windows[e.name] = &e
	j.windows++
}

// add adds what is known of the same window, or of one before or after it.
func (at *journalEntry) add(now int64, e journalEntry) {
	switch first := min(at.reset, e.reset); {
	case first > now: // also if its reset has come closer: see give.lua
		at.reset = first
	case at.reset == e.reset:
	case at.reset < e.reset:
		*at = e
		return
	default:
		return
	}
	at.per = max(at.per, e.per)
	at.spent += e.spent
	at.back += e.back
}

// sending returns the part for noteBack of what is sent after this: it is counted in it or later.
func (j *journal) sending() *journalPart {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := len(j.parts) - 1; i > 0; i-- {
		if j.parts[i-1].offsets != nil {
			return j.parts[i]
		}
	}
	return j.parts[0]
}

// next ends the open part and begins another. It returns the one that has ended: what was noted so
// far is in it, or in one before it.
func (j *journal) next(now int64) *journalPart {
	j.mu.Lock()
	defer j.mu.Unlock()
	last := j.parts[len(j.parts)-1]
	j.parts = append(j.parts, newJournalPart(now))
	return last
}

// saw notes what was read after a part's end, if anything was: the offsets of masters, and the
// histories whose masters are replicas now. second is the server's.
func (j *journal) saw(p *journalPart, offsets map[string]int64, ended map[string]bool, now, second int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if p.ended = ended; len(offsets) > 0 {
		p.offsets = offsets
		j.age(j.seen, second) // one that is seen after an outage may be a promoted replica
		j.seen = now
	} else if i := slices.Index(j.parts, p); len(p.windows) == 0 && len(ended) == 0 && i > 0 {
		j.remove(i)
	}
}

// remove removes a part.
func (j *journal) remove(i int) {
	p := j.parts[i]
	j.windows -= len(p.windows)
	p.windows = nil // a settlement may be about to note something in it
	j.parts = slices.Delete(j.parts, i, i+1)
}

// age drops parts that are too old, and merges those that are old.
func (j *journal) age(now, second int64) {
	for len(j.parts) > 2 && j.parts[1].opened <= now-journalLasts {
		j.remove(0)
	}
	for i := 1; i < len(j.parts)-1 && j.parts[i+1].opened <= now-journalFine; {
		into, p := j.parts[i-1], j.parts[i]
		if into.offsets == nil || !p.sawAll(into.offsets) || len(into.ended)+len(p.ended) > 0 || j.parts[i+1].opened-into.opened > journalCoarse {
			i++
			continue
		}
		into.offsets = p.offsets
		windows := p.windows
		j.remove(i)
		for _, e := range windows {
			j.add(into, second, *e)
		}
	}
}

// sawAll reports whether the masters of all these histories were seen at the end of a part.
func (p *journalPart) sawAll(histories map[string]int64) bool {
	for h := range histories {
		if _, ok := p.offsets[h]; !ok {
			return false
		}
	}
	return true
}

// stop ends the journal, and forgets what it has.
func (j *journal) stop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.on.Store(false)
	for len(j.parts) > 1 {
		j.remove(0)
	}
	j.windows -= len(j.parts[0].windows)
	clear(j.parts[0].windows)
	j.late = nil
}

// isEmpty reports whether there is nothing that could be counted again.
func (j *journal) isEmpty() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.windows == 0 && len(j.late) == 0
}

// A promotion is a replica that has taken a master's place.
type promotion struct {
	of, by string // the master's history, and the replica's
	// first is the first offset of the master's history that the replica has not received; 0 if
	// that is not known.
	first int64
	slots slotSet // that the replica counts
	epoch uint64  // takes of this or before it may have been counted by the master
	known bool    // the replica had its place before, and its master counted again since
}

// missing removes from the journal what a promoted replica may not have received, and returns it.
// now is the server's second.
func (j *journal) missing(p promotion, now int64) (all []journalEntry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	from, until := j.span(&p)
	return j.take(from, until, &p, now)
}

// awayFrom reports whether other masters were seen, and this one was not, since it was last seen
// before the last look, which has shown it. of is the history of the only one that matters; "": any
// does. On a cluster, where of is not "", several are seen at a time, and one that is slow is not
// away before awayLasts. Then from is the first part that others may have counted: see elsewhere.
func (j *journal) awayFrom(by, of string) (from int, away bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	from = len(j.parts) - 2
	for ; from > 0; from-- {
		at := j.parts[from-1].offsets
		if _, ok := at[by]; ok {
			break
		}
		_, ok := at[of]
		away = away || ok || of == "" && len(at) > 0
	}
	if of != "" && j.parts[len(j.parts)-1].opened-j.parts[from].opened < awayLasts {
		away = false
	}
	return from, away
}

// elsewhere removes from the journal what others may have counted while a master was away, and
// returns it. from is that of awayFrom, with no look in between. That master has received none of
// it, since its history goes on.
func (j *journal) elsewhere(from int, p promotion, now int64) (all []journalEntry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.take(from, len(j.parts)-1, &p, now)
}

// take removes what some parts have of the slots of a promotion, and returns it.
func (j *journal) take(from, until int, p *promotion, now int64) (all []journalEntry) {
	for slot := range p.slots {
		j.promoted[slot] = p.epoch
	}
	sums := make(map[string]*journalEntry)
	for i := from; i <= until; i++ {
		certain := false // that all of it is missing, because what was there before it is
		if i > 0 {
			o, ok := j.parts[i-1].offsets[p.of]
			certain = ok && p.first > 0 && o >= p.first-1
		}
		j.move(j.parts[i], p.slots, now, certain, sums)
	}
	for _, sum := range sums {
		sum.spent, sum.back = sum.spent-sum.back, 0
		if sum.spent > 0 {
			all = append(all, *sum)
		}
	}
	return all
}

// span returns the first and the last part that may have what a promoted replica lacks.
func (j *journal) span(p *promotion) (from, until int) {
	seen, replaced := -1, -1 // the last part that saw the master, the first that saw it replaced
	for i, at := range j.parts {
		o, ok := at.offsets[p.of]
		switch {
		case ok && o < p.first:
			from = i + 1 // all before that offset has arrived
		case ok && seen < 0: // it has counted nothing before, unless looks have failed
			for from = i; from > 0 && j.parts[from-1].offsets == nil; from-- {
			}
		}
		if ok {
			seen = i
		}
		if _, by := at.offsets[p.by]; replaced < 0 && (by || at.ended[p.of]) {
			replaced = i
		}
	}
	if replaced < 0 {
		return from, len(j.parts) - 1
	}
	// the master's last answers may be noted a moment after it was seen replaced
	return from, min(max(seen, replaced)+1, len(j.parts)-1)
}

// move adds what a part has of some slots to sums. What was given back is only known to be missing
// as well if certain.
func (j *journal) move(at *journalPart, slots slotSet, now int64, certain bool, sums map[string]*journalEntry) {
	for name, e := range at.windows {
		if !slots[e.slot] {
			continue
		}
		delete(at.windows, name)
		j.windows--
		if !certain {
			e.back = 0
		}
		switch sum := sums[name]; {
		case e.reset <= now: // it has ended
		case sum == nil:
			sums[name] = e
		default:
			sum.add(now, *e)
		}
	}
}

// takeLate removes and returns what was noted late.
func (j *journal) takeLate() []journalEntry {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := j.late
	j.late = nil
	return all
}
