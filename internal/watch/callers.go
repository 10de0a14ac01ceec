package watch

import (
	"cmp"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/weirlimit/weir"
)

const (
	// maxKeptBytes bounds the saved keys over all limiters. Callers beyond it are shown, but their
	// keys are not saved.
	maxKeptBytes   = 16 << 20
	maxCallerBytes = 4 << 10 // about the max saved for one caller
	minWeight      = 0.05    // entries that weigh less are removed
)

// A callers has the top callers of one limiter: those that spend most and those that are refused
// most. What a request has spent is what was charged for it, until it is known what it has cost.
type callers struct {
	// mu is held by a Snapshot for some microseconds. Meanwhile requests go to shard.pending.
	mu       sync.Mutex
	spending sketch
	refused  sketch
}

// A touch is one request of a caller.
type touch struct {
	hash           uint64
	second         int64
	weight         int64 // the number of requests that it represents
	units, refused int64
	exempt         bool
	limiter        *weir.Limiter
	standing       standing

	// settles means that the touch is no request, but what one has cost that was admitted in
	// second: change units more than were charged for it.
	settles bool
	change  int64
}

// A standing is the part of a weir.Standing that is kept. A pointer to its limiter would keep a
// former policy in memory, with its files of networks.
type standing struct {
	window                         *weir.Window // possibly of an earlier policy; read only
	limit, count, remaining, reset int64
	penalty                        bool
}

func standingOf(s *weir.Standing) standing {
	return standing{s.Window, s.Limit, s.Count, s.Remaining, s.Reset, s.Penalty}
}

// A profile describes a caller as far as it may be shown, and has the keys that are needed to act
// on it.
type profile struct {
	since     int64 // when the entry was made
	spent     int64 // units since then, without decay
	refusals  int64 // refusals since then, without decay
	standing  standing
	exempt    bool
	described bool // whether kind and name were set
	kind      string
	name      string
	saved     weir.SavedKeys // nil: not saved yet, or no room
	savedAt   int64          // the second in which they were saved
}

// add counts a touch. If caller is nil, a later touch describes the caller. add uses buffer as
// working memory and returns it for the next call.
func (c *callers) add(r *Recorder, t *touch, caller weir.Keys, buffer []byte) []byte {
	if t.settles {
		c.spending.settle(t, true)
		c.refused.settle(t, false)
		return buffer
	}
	c.spending.at(t.second)
	c.refused.at(t.second)
	ranked, unranked, amount, other := &c.spending, &c.refused, t.units, t.refused
	if t.refused > 0 {
		ranked, unranked, amount, other = &c.refused, &c.spending, t.refused, t.units
	}
	e, dropped := ranked.add(t.hash, amount, t.weight)
	r.release(&dropped)
	buffer = e.note(r, t, caller, buffer)
	e.other += float64(other) * float64(t.weight) * ranked.scale
	e.reserved += float64(t.units) * float64(t.weight) * ranked.scale
	if b, _ := unranked.find(t.hash); b != nil {
		b.other += float64(amount) * float64(t.weight) * unranked.scale
		b.reserved += float64(t.units) * float64(t.weight) * unranked.scale
		buffer = b.note(r, t, caller, buffer)
	}
	return buffer
}

// note updates an entry with a touch. It reads the caller's keys once. If the entry replaced
// another one, it does so on the second touch, so that a flood of callers with one request each
// stays cheap.
func (e *entry) note(r *Recorder, t *touch, caller weir.Keys, buffer []byte) []byte {
	if e.since == 0 {
		e.since = t.second
	}
	e.spent += t.units * t.weight
	e.refusals += t.refused * t.weight
	e.standing, e.exempt = t.standing, t.exempt
	e.seen++
	if e.saved != nil && caller != nil && t.second > e.savedAt && hasOtherPlan(t.limiter, caller, e.saved) {
		r.release(&e.profile)
		e.saved = nil
	}
	if e.saved != nil || caller == nil || t.standing.window == nil || e.replaced && e.seen < 2 {
		return buffer
	}
	if !e.described {
		e.described = true
		e.kind, e.name, buffer = describe(t.standing.window, caller, buffer)
	}
	if r.kept.Load() < maxKeptBytes-maxCallerBytes {
		e.saved, e.savedAt = r.saveKeys(t.limiter, caller), t.second
	}
	return buffer
}

// hasOtherPlan reports whether the plan of a caller has changed since its keys were saved. It is
// asked at most once a second and caller, because callers with several plans may share a window.
func hasOtherPlan(l *weir.Limiter, caller weir.Keys, saved weir.SavedKeys) bool {
	if l == nil || len(l.Plans.List) == 0 {
		return false
	}
	who, ok := caller.(weir.Planner)
	if !ok {
		return false
	}
	now, known := who.Plan(l.Plans.By)
	before, was := saved.Plan(l.Plans.By)
	if !weir.IsPlanName(now) {
		now = "" // as weir.SaveKeys saves it
	}
	return known && (!was || now != before)
}

// describe returns what may be shown of a caller, and buffer, unless a long value has made it too
// large to keep.
func describe(w *weir.Window, caller weir.Keys, buffer []byte) (kind, name string, _ []byte) {
	kind, name, grown := weir.ShownCaller(w, caller, buffer)
	if cap(grown) <= maxBuffer {
		buffer = grown
	}
	return kind, name, buffer
}

// maxBuffer is the max size of the working memory that a shard keeps, in bytes.
const maxBuffer = 16 << 10

// size returns about how many bytes of memory the saved keys of a caller take.
func size(k weir.SavedKeys) int64 {
	n := int64(64)
	for i := range k {
		n += 48 + int64(len(k[i].Value))
	}
	return n
}

// saveKeys returns the keys to save of a caller: those of all windows of the limiter, so that no
// other caller is taken for it. It returns nil if there is no room.
func (r *Recorder) saveKeys(l *weir.Limiter, caller weir.Keys) weir.SavedKeys {
	k := weir.SaveKeys(l, caller)
	if n := size(k); r.kept.Add(n) > maxKeptBytes {
		r.kept.Add(-n)
		return nil
	}
	return k
}

// release frees the room of a profile's saved keys.
func (r *Recorder) release(p *profile) {
	if p.saved != nil {
		r.kept.Add(-size(p.saved))
	}
}

// clear removes all callers. The caller of clear holds mu.
func (c *callers) clear(r *Recorder) {
	for _, s := range []*sketch{&c.spending, &c.refused} {
		for i := range s.entries {
			r.release(&s.entries[i].profile)
		}
		*s = sketch{}
	}
}

// Caller returns the saved keys of the caller that a Snapshot shows with that hash, for Inspect,
// Reset and Grant. They are the key sources that the limiter's windows counted it by. ok is false
// if the limiter has no caller with that hash, or its keys were not saved.
func (r *Recorder) Caller(limiter, hash string) (caller weir.SavedKeys, ok bool) {
	var b [8]byte
	if len(hash) != hex.EncodedLen(len(b)) || strings.ToLower(hash) != hash {
		return nil, false
	}
	if _, err := hex.Decode(b[:], []byte(hash)); err != nil {
		return nil, false
	}
	r.mu.Lock()
	l := r.limiters[limiter]
	r.mu.Unlock()
	if l == nil {
		return nil, false
	}
	l.callers.mu.Lock()
	defer l.callers.mu.Unlock()
	for _, s := range []*sketch{&l.callers.spending, &l.callers.refused} {
		if e, _ := s.find(hashValue(b)); e != nil && e.saved != nil {
			return e.saved, true
		}
	}
	return nil, false
}

// A rankedEntry is a copy of an entry, with its weights as of now.
type rankedEntry struct {
	hash                              uint64
	count, uncertain, other, reserved float64
	profile
}

// ranked removes entries below minWeight, and returns the top entries of both sketches, ranked by
// their certain weight.
func (c *callers) ranked(r *Recorder, now int64, top int) (spending, refused []rankedEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range []*sketch{&c.spending, &c.refused} {
		s.at(now)
		s.prune(r)
	}
	return c.spending.ranked(top, &c.refused), c.refused.ranked(top, &c.spending)
}

// prune removes the entries that weigh less than minWeight now.
func (s *sketch) prune(r *Recorder) {
	for i := len(s.entries) - 1; i >= 0; i-- {
		if s.counts[i]/s.scale < minWeight {
			dropped := s.remove(i)
			r.release(&dropped)
		}
	}
}

// ranked returns copies of the top entries. For the figure that s does not rank by, it uses the
// other sketch, unranked, if that has more.
func (s *sketch) ranked(top int, unranked *sketch) []rankedEntry {
	type place struct {
		certain, count float64
		index          int
	}
	var room [capacity]place
	places := room[:len(s.entries)]
	for i := range places {
		places[i] = place{s.counts[i] - s.entries[i].error, s.counts[i], i}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(b.certain, a.certain), cmp.Compare(b.count, a.count), cmp.Compare(s.hashes[a.index], s.hashes[b.index]))
	})
	places = places[:min(len(places), top)]
	out := make([]rankedEntry, len(places))
	for i, p := range places {
		e := &s.entries[p.index]
		ranked := rankedEntry{hash: s.hashes[p.index], count: p.count / s.scale, other: e.other / s.scale, reserved: e.reserved / s.scale, profile: e.profile}
		ranked.uncertain = (e.error + 3*math.Sqrt(e.variance)) / s.scale
		if b, count := unranked.find(ranked.hash); b != nil {
			ranked.other = max(ranked.other, (count-b.error)/unranked.scale)
			ranked.reserved = max(ranked.reserved, b.reserved/unranked.scale)
			ranked.spent, ranked.refusals = max(e.spent, b.spent), max(e.refusals, b.refusals)
			ranked.since = min(e.since, b.since)
		}
		out[i] = ranked
	}
	return out
}
