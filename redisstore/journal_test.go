package redisstore

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// A replicated is a master as a journal sees it, and a replica that receives a prefix of what the
// master counts.
type replicated struct {
	j       *journal
	now     int64 // ns
	epoch   uint64
	history string
	offset  int64
	counted []*countedUnits // by the master of the first history
	unnoted []func()        // answers that this process has not noted yet
	looks   int
	looked  []lookedAt // at the first history
}

type lookedAt struct {
	look   int
	offset int64
}

type countedUnits struct {
	window string
	units  int64 // less than 0: given back
	from   int64 // the offset before it
	looks  int   // that had begun when it was noted
}

func (r *replicated) second() int64 { return r.now / 1e9 }

// count counts units at the server, and returns what notes the answer.
func (r *replicated) count(window string, units int64) (note func()) {
	e := journalEntry{name: window, slot: noSlot, per: 1000, reset: 1000}
	epoch, at := r.epoch+1, r.j.sending()
	c := &countedUnits{window: window, units: units, from: r.offset}
	if r.history == "a" {
		r.counted = append(r.counted, c)
	}
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

func (r *replicated) look(between func()) {
	part := r.j.next(r.now)
	r.looks++
	look := r.looks
	between()
	r.looked = append(r.looked, lookedAt{look, r.offset})
	offsets := map[string]int64{r.history: r.offset}
	between()
	r.j.saw(part, offsets, nil, r.now, r.second())
}

// What a promoted replica has not received is counted again, whenever the offsets were read and the
// answers noted. What was counted before the last offset that it is known to have received is not.
func TestWhatAReplicaLacksIsCountedAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &replicated{j: newJournal(), history: "a", epoch: 5}
		some := func(what string, n int) int { return rapid.IntRange(0, n).Draw(t, what) }
		count := func() {
			window, units := fmt.Sprint(some("window", 2)), int64(1+some("units", 9))
			if some("gives back", 4) == 0 {
				units = -units
			}
			if note := r.count(window, units); some("late", 3) > 0 {
				note()
			} else {
				r.unnoted = append(r.unnoted, note)
			}
		}
		between := func() {
			for range some("between", 2) {
				count()
			}
		}
		step := func() {
			switch some("step", 6) {
			case 0:
				r.look(between)
			case 1:
				r.now += int64(some("ms", 900)) * 1e6
			case 2:
				if len(r.unnoted) > 0 {
					r.unnoted[0]()
					r.unnoted = r.unnoted[1:]
				}
			default:
				count()
			}
		}
		for range some("steps", 60) {
			step()
		}
		// it goes on counting, although another has taken its place
		first := r.offset + 1 - int64(some("behind", int(r.offset)))
		for range some("steps after", 20) {
			step()
		}
		given := make(map[string]int64)
		again := func(all []journalEntry) {
			for _, e := range all {
				given[e.name] += e.spent
			}
		}
		// then this process has another connection; takes that have begun may be answered by either
		r.epoch++
		known := make(map[int64]bool) // offsets that are still known
		for _, p := range r.j.parts {
			known[p.offsets["a"]] = true
		}
		part := r.j.next(r.now)
		r.looks++
		r.history, r.offset = "b", first+1000
		r.j.saw(part, map[string]int64{"b": r.offset}, nil, r.now, r.second())
		r.epoch++
		again(r.j.missing(promotion{of: "a", by: "b", first: first, slots: slotSet{noSlot: true}, epoch: r.epoch}, r.second()))
		for range some("counted by the replica", 5) {
			count()
		}
		for _, note := range r.unnoted {
			note()
		}
		again(r.j.takeLate())

		arrived := 0 // the last look before which all is known to have arrived
		for _, l := range r.looked {
			if l.offset < first && known[l.offset] {
				arrived = l.look
			}
		}
		lost, most := make(map[string]int64), make(map[string]int64)
		for _, c := range r.counted {
			if c.from >= first-1 {
				lost[c.window] += c.units
			}
			if c.looks >= arrived {
				most[c.window] += max(c.units, 0)
			}
		}
		for window, units := range lost {
			if given[window] < units {
				t.Fatalf("window %s: %d units are missing, %d were counted again (first %d, %+v)", window, units, given[window], first, r.counted)
			}
		}
		for window, units := range given {
			if units > most[window] {
				t.Fatalf("window %s: %d units were counted again, of at most %d (first %d, %+v)", window, units, most[window], first, r.looked)
			}
		}
	})
}
