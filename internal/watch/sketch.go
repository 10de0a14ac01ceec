package watch

import (
	"math"
	"slices"
)

// A sketch finds the heavy hitters of a stream in little memory: Space-Saving (Metwally, Agrawal and El Abbadi, 2005) over weights
// that halve every five minutes. Whoever has more than a capacity-th of the whole weight has an entry; an entry's count is never
// less than the caller's true weight, and never more than that plus the entry's error. It is not safe for concurrent use.
//
// Weights are kept as they are at a landmark in time: what comes later is scaled up, by 2 for every half-life, so that nothing that
// is kept has to be touched as time goes by, and the order of two entries never changes by itself.
type sketch struct {
	landmark int64   // Unix seconds at which a unit weighs 1
	second   int64   // the latest second that was seen
	scale    float64 // what a unit weighs in that second

	hashes  []uint64 // beside counts and entries, so that the searches read little
	counts  []float64
	entries []entry
	total   float64 // of all weights ever added
	lost    float64 // the most that a caller without an entry can weigh because an entry was dropped
}

const (
	capacity = 128 // entries
	halfLife = 300 // seconds
	farAhead = 64  // half-lives after which the landmark moves
)

// An entry is what is beside a count.
type entry struct {
	error    float64 // how much of the count may be somebody else's
	variance float64 // of the count, because some of it was sampled
	other    float64 // the weight of what this sketch does not rank by, since the entry is there
	seen     int     // how often, since then
	replaced bool    // whether it took another's place
	profile
}

// at turns the sketch to a second. A clock that goes back a little is another machine's; one that goes back far stops the decay,
// and nothing else.
func (s *sketch) at(second int64) {
	switch {
	case s.scale == 0:
		s.landmark, s.second, s.scale = second, second, 1
	case second > s.second:
		s.second = second
		s.scale = math.Exp2(float64(second-s.landmark) / halfLife)
		if second-s.landmark > farAhead*halfLife {
			s.rebase()
		}
	case second < s.second-slack:
		s.landmark -= s.second - second
		s.second = second
	}
}

// rebase moves the landmark to the present.
func (s *sketch) rebase() {
	down := 1 / s.scale // 0 after 300 half-lives or so
	for i := range s.entries {
		s.counts[i] *= down
		e := &s.entries[i]
		e.error, e.other, e.variance = e.error*down, e.other*down, e.variance*down*down
	}
	s.total, s.lost = s.total*down, s.lost*down
	s.landmark, s.scale = s.second, 1
}

// find returns the entry of a hash and its count; nil where it has none.
func (s *sketch) find(hash uint64) (e *entry, count float64) {
	if i := slices.Index(s.hashes, hash); i >= 0 {
		return &s.entries[i], s.counts[i]
	}
	return nil, 0
}

// add counts amount units, each of which stands for weight. It returns the caller's entry, and what was in its place before where
// the entry is new.
func (s *sketch) add(hash uint64, amount, weight int64) (e *entry, dropped profile) {
	w := float64(amount) * float64(weight) * s.scale
	s.total += w
	i := slices.Index(s.hashes, hash)
	switch {
	case i >= 0:
		s.counts[i] += w
		e = &s.entries[i]
	case len(s.entries) < capacity:
		s.hashes = append(s.hashes, hash)
		s.counts = append(s.counts, s.lost+w)
		s.entries = append(s.entries, entry{error: s.lost})
		e = &s.entries[len(s.entries)-1]
	default:
		least := 0
		for i, n := range s.counts {
			if n < s.counts[least] {
				least = i
			}
		}
		e = &s.entries[least]
		dropped = e.profile
		*e = entry{error: s.counts[least], variance: e.variance, replaced: true}
		s.hashes[least] = hash
		s.counts[least] += w
	}
	if weight > 1 { // each of weight requests was counted with a chance of 1 in weight
		unit := float64(amount) * s.scale
		e.variance += unit * unit * float64(weight) * float64(weight-1)
	}
	return e, dropped
}

// remove drops an entry, and remembers how much a caller can have lost by it.
func (s *sketch) remove(i int) (dropped profile) {
	dropped = s.entries[i].profile
	s.lost = max(s.lost, s.counts[i])
	end := len(s.entries) - 1
	s.hashes[i], s.counts[i], s.entries[i] = s.hashes[end], s.counts[end], s.entries[end]
	s.entries[end] = entry{}
	s.hashes, s.counts, s.entries = s.hashes[:end], s.counts[:end], s.entries[:end]
	return dropped
}
