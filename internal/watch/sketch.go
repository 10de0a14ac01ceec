package watch

import (
	"math"
	"slices"
)

// A sketch finds the heavy hitters of a stream in little memory: Space-Saving (Metwally, Agrawal
// and El Abbadi, 2005) over weights that halve every five minutes. A caller with more than
// 1/capacity of the total weight has an entry. An entry's count is at least the caller's true
// weight, and exceeds it by at most the entry's error. A sketch is not safe for concurrent use.
//
// A weight that was added may turn out to be less (settle). An entry that goes leaves its weight in
// lost, so that a caller which comes back is still not counted too low.
//
// Weights are stored as of a landmark in time. A later unit is scaled up, by 2 for every half-life.
// So stored weights do not change as time passes, and neither does the order of two entries.
type sketch struct {
	landmark int64   // Unix seconds at which a unit weighs 1
	second   int64   // the latest second seen
	scale    float64 // the weight of a unit in that second

	hashes  []uint64 // parallel to counts and entries, so that searches read little memory
	counts  []float64
	entries []entry
	total   float64 // sum of all weights ever added
	lost    float64 // max weight that a caller without an entry lost in a removed entry
}

const (
	capacity = 128 // max entries
	halfLife = 300 // seconds
	farAhead = 64  // half-lives after which the landmark moves
)

// An entry has the data of a caller in addition to its count.
type entry struct {
	error    float64 // max part of the count that may belong to other callers
	variance float64 // variance of the count due to sampling
	other    float64 // weight, since the entry exists, of what this sketch does not rank by
	reserved float64 // weight, since the entry exists, of the units as they were charged at first
	seen     int     // touches since the entry exists
	replaced bool    // whether it replaced another entry
	profile
}

// at advances the sketch to a second. A clock that goes back a little is another machine's and is
// ignored. If it goes back far, the weights do not decay for the gap.
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
	case second < s.second-clockSkew:
		s.landmark -= s.second - second
		s.second = second
	}
}

// rebase moves the landmark to the current second.
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

// find returns the entry of a hash and its count, or nil if the hash has no entry.
func (s *sketch) find(hash uint64) (e *entry, count float64) {
	if i := slices.Index(s.hashes, hash); i >= 0 {
		return &s.entries[i], s.counts[i]
	}
	return nil, 0
}

// add counts amount units, each of which represents weight units. It returns the caller's entry,
// and the profile of the entry that a new one replaced.
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
		lowest := 0
		for i, n := range s.counts {
			if n < s.counts[lowest] {
				lowest = i
			}
		}
		e = &s.entries[lowest]
		dropped = e.profile
		s.lost = max(s.lost, s.counts[lowest])
		*e = entry{error: s.lost, variance: e.variance, replaced: true}
		s.hashes[lowest] = hash
		s.counts[lowest] = s.lost + w
	}
	if weight > 1 { // each request was counted with a probability of 1 in weight
		unit := float64(amount) * s.scale
		e.variance += unit * unit * float64(weight) * float64(weight-1)
	}
	return e, dropped
}

// settle changes what a request has spent, by the weight that it was counted with. ranks means that
// s ranks by units. An entry that was made after the request was admitted did not count it.
func (s *sketch) settle(t *touch, ranks bool) {
	i := slices.Index(s.hashes, t.hash)
	if i < 0 || s.entries[i].since == 0 || s.entries[i].since > t.second {
		return
	}
	e := &s.entries[i]
	e.spent = max(e.spent+t.change*t.weight, 0)
	unit := float64(t.change) * math.Exp2(float64(t.second-s.landmark)/halfLife)
	change := unit * float64(t.weight)
	if !ranks {
		e.other = max(e.other+change, 0)
		return
	}
	before := s.counts[i]
	s.counts[i] = max(before+change, e.error)
	s.total += s.counts[i] - before
	if t.weight > 1 {
		e.variance += unit * unit * float64(t.weight) * float64(t.weight-1)
	}
}

// remove removes an entry, and updates the max weight that a caller can lose that way.
func (s *sketch) remove(i int) (dropped profile) {
	dropped = s.entries[i].profile
	s.lost = max(s.lost, s.counts[i])
	end := len(s.entries) - 1
	s.hashes[i], s.counts[i], s.entries[i] = s.hashes[end], s.counts[end], s.entries[end]
	s.entries[end] = entry{}
	s.hashes, s.counts, s.entries = s.hashes[:end], s.counts[:end], s.entries[:end]
	return dropped
}
