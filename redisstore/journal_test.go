package redisstore

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A replicated is a master as a journal sees it, and replicas that receive a prefix of what it
// counts, and take its place.
type replicated struct {
	t       *rapid.T
	j       *journal
	now     int64 // ns
	epoch   uint64
	history string
	offset  int64
	counted []*countedUnits
	unnoted []func() // answers that this process has not noted yet
	looks   int
	looked  []lookedAt
}

// A lookedAt is the offset of a history that a look has read.
type lookedAt struct {
	history string
	look    int
	offset  int64
}

type countedUnits struct {
	history, window string
	units           int64 // less than 0: given back
	from            int64 // the offset before it
	looks           int   // that had begun when it was noted
}

func (r *replicated) second() int64 { return r.now / 1e9 }

func (r *replicated) some(what string, n int) int { return rapid.IntRange(0, n).Draw(r.t, what) }

// count counts units at the server, and returns what notes the answer.
func (r *replicated) count(window string, units int64) (note func()) {
	e := journalEntry{name: window, slot: noSlot, per: 1000, reset: 1000}
	epoch, at := r.epoch+1, r.j.sending()
	c := &countedUnits{history: r.history, window: window, units: units, from: r.offset}
	r.counted = append(r.counted, c)
	r.offset += 40
	return func() {
		c.looks = r.looks
		if e.spent = units; units > 0 {
			r.j.noteSpent(epoch, r.second(), e)
			return
		}
		e.spent, e.back = 0, -units
		r.j.noteBack(at, r.second(), e)
	}
}

// countSome counts some units, and notes the answer now or later.
func (r *replicated) countSome() {
	window, units := fmt.Sprint(r.some("window", 2)), int64(1+r.some("units", 9))
	if r.some("gives back", 4) == 0 {
		units = -units
	}
	if note := r.count(window, units); r.some("late", 3) > 0 {
		note()
	} else {
		r.unnoted = append(r.unnoted, note)
	}
}

func (r *replicated) between() {
	for range r.some("between", 2) {
		r.countSome()
	}
}

// look reads the offset while units are counted, or fails to.
func (r *replicated) look() {
	part := r.j.next(r.now)
	r.looks++
	look := r.looks
	r.between()
	if r.some("fails", 5) == 0 {
		r.j.saw(part, nil, nil, r.now, r.second())
		return
	}
	r.looked = append(r.looked, lookedAt{r.history, look, r.offset})
	offsets := map[string]int64{r.history: r.offset}
	r.between()
	r.j.saw(part, offsets, nil, r.now, r.second())
}

func (r *replicated) step() {
	switch r.some("step", 6) {
	case 0:
		r.look()
	case 1:
		r.now += int64(r.some("ms", 900)) * 1e6
	case 2:
		if len(r.unnoted) > 0 {
			r.unnoted[0]()
			r.unnoted = r.unnoted[1:]
		}
	default:
		r.countSome()
	}
	windows := 0
	for _, p := range r.j.parts {
		windows += len(p.windows)
	}
	if windows != r.j.windows {
		r.t.Fatalf("%d windows are in the journal, it counts %d", windows, r.j.windows)
	}
}

// promote replaces the master of this history by a replica that has not received all, and checks
// what is counted again.
func (r *replicated) promote(to string) {
	of := r.history
	began := r.offset // what it counts is after its first offset, which was seen
	for _, c := range r.counted {
		if c.history == of {
			began = min(began, c.from)
		}
	}
	first := r.offset + 1 - int64(r.some("behind", int(r.offset-began)))
	for range r.some("steps after", 20) { // it goes on counting, although another has its place
		r.step()
	}
	part := r.j.next(r.now)
	r.looks++
	r.between() // the master's last answers
	r.epoch++
	r.history, r.offset = to, first+1000
	r.looked = append(r.looked, lookedAt{to, r.looks, r.offset})
	r.j.saw(part, map[string]int64{to: r.offset}, nil, r.now, r.second())
	known := make(map[int64]bool) // offsets that are still known
	for _, p := range r.j.parts {
		if o, ok := p.offsets[of]; ok {
			known[o] = true
		}
	}
	r.epoch++
	given := make(map[string]int64)
	again := func(all []journalEntry) {
		for _, e := range all {
			given[e.name] += e.spent
			if e.back != 0 { // it is noted again when it is given
				r.t.Fatalf("%+v has what was given back, which is subtracted", e)
			}
		}
	}
	again(r.j.missing(promotion{of: of, by: to, first: first, slots: slotSet{noSlot: true}, epoch: r.epoch}, r.second()))
	for range r.some("counted by the replica", 5) {
		r.countSome()
	}
	for _, note := range r.unnoted {
		note()
	}
	r.unnoted = nil
	again(r.j.takeLate())
	r.check(of, first, known, given)
	for window, units := range given { // the replica counts it, and may be replaced, too
		r.count(window, units)()
	}
}

func (r *replicated) check(of string, first int64, known map[int64]bool, given map[string]int64) {
	// the last look before which all has arrived; the first look at the history
	arrived, seen := -1, -1
	for _, l := range r.looked {
		if l.history == of && seen < 0 {
			seen = l.look
		}
		if l.history == of && l.offset < first && known[l.offset] {
			arrived = l.look
		}
	}
	lost, most := make(map[string]int64), make(map[string]int64)
	for _, c := range r.counted {
		if c.history == of && c.from >= first-1 {
			lost[c.window] += c.units
		}
		if c.looks >= max(arrived, seen-1) {
			most[c.window] += max(c.units, 0)
		}
	}
	for window, units := range lost {
		if given[window] < units {
			r.t.Fatalf("window %s: %d units of %s are missing, %d were counted again (first %d, %+v)", window, units, of, given[window], first, r.looked)
		}
	}
	for window, units := range given {
		if units > most[window] {
			r.t.Fatalf("window %s: %d units of %s were counted again, of at most %d (first %d, %+v)", window, units, of, most[window], first, r.looked)
		}
	}
}

// What a promoted replica has not received is counted again, whenever the offsets were read and the
// answers noted. What was counted before the last offset that it is known to have received is not,
// nor what was counted by an earlier master.
func TestWhatAReplicaLacksIsCountedAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &replicated{t: t, j: newJournal(), history: "a", epoch: 5}
		r.looked = append(r.looked, lookedAt{"a", 0, 0})
		// a replica is seen before anything is counted
		r.j.saw(r.j.next(r.now), map[string]int64{"a": 0}, nil, r.now, r.second())
		for _, to := range []string{"b", "c"} {
			for range r.some("steps", 60) {
				r.step()
			}
			r.promote(to)
		}
	})
}

// What was counted before an outage is kept until a master answers again: that may be a replica
// that was promoted after minutes.
func TestNothingIsForgottenInAnOutage(t *testing.T) {
	const name, minute = "w", int64(time.Minute)
	j, now := newJournal(), minute
	look := func(offsets map[string]int64) { j.saw(j.next(now), offsets, nil, now, now/1e9) }
	look(map[string]int64{"a": 100})
	for _, units := range []int64{4, 3} { // the last answers come after a look that failed
		now += 1e6
		j.noteSpent(1, now/1e9, journalEntry{name: name, slot: noSlot, per: 3600, reset: 4000, spent: units})
		look(nil)
	}
	for range 120 { // nothing answers for two minutes
		now += 1e9
		look(nil)
	}
	now += 1e9
	look(map[string]int64{"b": 90})
	missing := j.missing(promotion{of: "a", by: "b", first: 95, slots: slotSet{noSlot: true}, epoch: 2}, now/1e9)
	if got := unitsOf(missing); got != 7 {
		t.Errorf("%d units of 7 are counted again after an outage of two minutes", got)
	}
	j.noteSpent(3, now/1e9, journalEntry{name: name, slot: noSlot, per: 3600, reset: 4000, spent: 5})
	for range 120 {
		now += 1e9
		look(map[string]int64{"b": 200})
	}
	if !j.isEmpty() {
		t.Error("what a master has had for two minutes is still kept")
	}
}

// What a master counts that is gone back to, although a replica has its place, is counted again
// when that replica is in use again; what the replica has counted itself is not.
func TestWhatAReplacedMasterCountsIsCountedAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &replicated{t: t, j: newJournal(), history: "a", epoch: 5, looked: []lookedAt{{history: "a"}}}
		r.j.saw(r.j.next(r.now), map[string]int64{"a": 0}, nil, r.now, r.second())
		for range r.some("steps", 30) {
			r.step()
		}
		r.promote("b")
		// nothing is counted before a new connection is looked at
		see := func(history string, offset int64) {
			r.history, r.offset = history, offset
			r.j.saw(r.j.next(r.now), map[string]int64{history: offset}, nil, r.now, r.second())
		}
		for i := range int64(2) {
			r.counted = nil
			for range r.some("steps at the replica", 30) {
				r.step()
			}
			for _, note := range r.unnoted {
				note()
			}
			r.unnoted = nil
			see("b", r.offset)
			if _, away := r.j.awayFrom("b", "a"); away {
				t.Fatal("the replica was in use all the time")
			}
			of := rapid.SampledFrom([]string{"", "a"}).Draw(t, "of")
			r.counted = nil
			see("a", 10_000*(i+1))
			for range r.some("steps at its master", 30) {
				r.step()
			}
			want := make(map[string]int64)
			for _, c := range r.counted {
				want[c.window] += max(c.units, 0)
			}
			r.now += awayLasts
			see("b", 20_000*(i+1))
			from, away := r.j.awayFrom("b", of)
			if !away {
				t.Fatal("its master was in use")
			}
			r.epoch++
			got := make(map[string]int64)
			again := func(all []journalEntry) {
				for _, e := range all {
					got[e.name] += e.spent
				}
			}
			again(r.j.elsewhere(from, promotion{of: of, by: "b", slots: slotSet{noSlot: true}, epoch: r.epoch, known: true}, r.second()))
			for _, note := range r.unnoted {
				note()
			}
			r.unnoted = nil
			again(r.j.takeLate())
			for window, units := range want {
				if got[window] != units {
					t.Fatalf("window %s: %d units were counted by the replaced master, %d were counted again", window, units, got[window])
				}
			}
		}
	})
}
