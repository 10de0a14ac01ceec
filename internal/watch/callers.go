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
	maxKept  = 16 << 20 // bytes of values, over all limiters; callers beyond are shown, and nothing is kept of them
	maxKnown = 4 << 10  // about the most that is kept of one
	faint    = 0.05     // what weighs less is forgotten
)

// callers are the top callers of one limiter: who spends most, and who is refused most.
type callers struct {
	mu       sync.Mutex // held for some microseconds by a Snapshot, during which requests are put by (shard.pending)
	spending sketch
	refused  sketch
}

// A touch is what one request says of its caller.
type touch struct {
	hash           uint64
	second         int64
	weight         int64 // the requests that it stands for
	units, refused int64
	exempt         bool
	standing       standing
}

// A standing is what is kept of a weir.Standing.
type standing struct {
	limiter                        *weir.Limiter // of a policy that may be in force no longer; read only
	window                         *weir.Window  // one of its windows
	limit, count, remaining, reset int64
}

func standingOf(s *weir.Standing) standing {
	return standing{s.Limiter, s.Window, s.Limit, s.Count, s.Remaining, s.Reset}
}

// A profile is who a caller is, as far as it may be shown, and what is kept to act on it.
type profile struct {
	since     int64 // when the entry was made
	spent     int64 // units since then, not decayed
	refusals  int64 // likewise
	standing  standing
	exempt    bool
	described bool // kind and name are what they can be
	kind      string
	name      string
	known     weir.Known // nil: not yet, or no room
}

// add notes a touch. caller may be nil; then who it is waits for the next one. buffer is working memory, returned for the next.
func (c *callers) add(r *Recorder, t *touch, caller weir.Keys, buffer []byte) []byte {
	c.spending.at(t.second)
	c.refused.at(t.second)
	ranked, beside, amount, other := &c.spending, &c.refused, t.units, t.refused
	if t.refused > 0 {
		ranked, beside, amount, other = &c.refused, &c.spending, t.refused, t.units
	}
	e, dropped := ranked.add(t.hash, amount, t.weight)
	r.drop(&dropped)
	buffer = e.note(r, t, caller, buffer)
	e.other += float64(other) * float64(t.weight) * ranked.scale
	if b, _ := beside.find(t.hash); b != nil {
		b.other += float64(amount) * float64(t.weight) * beside.scale
		buffer = b.note(r, t, caller, buffer)
	}
	return buffer
}

// note brings an entry up to date. Who the caller is, is asked once, and of one that took another's place only if it comes again:
// a flood of callers that come once each must not cost that.
func (e *entry) note(r *Recorder, t *touch, caller weir.Keys, buffer []byte) []byte {
	if e.since == 0 {
		e.since = t.second
	}
	e.spent += t.units * t.weight
	e.refusals += t.refused * t.weight
	e.standing, e.exempt = t.standing, t.exempt
	e.seen++
	if e.known != nil || caller == nil || t.standing.window == nil || e.replaced && e.seen < 2 {
		return buffer
	}
	if !e.described {
		e.described = true
		e.kind, e.name, buffer = describe(t.standing.window, caller, buffer)
	}
	if r.kept.Load() < maxKept-maxKnown {
		e.known = r.keep(t.standing.limiter, caller)
	}
	return buffer
}

// describe returns the key sources that count a caller in a window, joined by "+", and its token's id where one of them is the
// token: nothing else that a caller has may be shown, and nothing at all that does not look like an id.
func describe(w *weir.Window, caller weir.Keys, buffer []byte) (kind, name string, _ []byte) {
	if caller == nil || w == nil {
		return "", "", buffer
	}
	for i, part := range w.Key {
		source, value := weir.CountedBy(buffer[:0], part, caller)
		if cap(value) <= maxBuffer {
			buffer = value
		}
		if source == "" {
			source = "nobody"
		}
		if i == 0 {
			kind = source
		} else {
			kind += "+" + source
		}
		if source == "token" && isID(value) {
			name = string(value)
		}
	}
	return kind, name, buffer
}

// maxBuffer is how much working memory a shard keeps.
const maxBuffer = 16 << 10

// isID reports whether b looks like a token's public id.
func isID(b []byte) bool {
	for _, c := range b {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return len(b) > 0 && len(b) <= 64
}

// size is about how many bytes of memory what is kept of a caller takes.
func size(k weir.Known) int64 {
	n := int64(64)
	for i := range k {
		n += 48 + int64(len(k[i].Value))
	}
	return n
}

// keep returns what to keep of a caller: what all windows of the limiter count it by, so that none is taken for another's. nil where
// there is no room for it.
func (r *Recorder) keep(l *weir.Limiter, caller weir.Keys) weir.Known {
	k := weir.Keep(l, caller)
	if n := size(k); r.kept.Add(n) > maxKept {
		r.kept.Add(-n)
		return nil
	}
	return k
}

// drop gives back the room that a profile took.
func (r *Recorder) drop(p *profile) {
	if p.known != nil {
		r.kept.Add(-size(p.known))
	}
}

// forget drops all callers, under mu.
func (c *callers) forget(r *Recorder) {
	for _, s := range []*sketch{&c.spending, &c.refused} {
		for i := range s.entries {
			r.drop(&s.entries[i].profile)
		}
		*s = sketch{}
	}
}

// Caller returns what is kept of the caller of a limiter that a Snapshot shows under that hash, for Inspect, Reset and Grant: the
// sources that the limiter's windows counted it by. ok is false where the hash is none of those, or nothing is kept of its caller.
func (r *Recorder) Caller(limiter, hash string) (caller weir.Keys, ok bool) {
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
		if e, _ := s.find(hashValue(b)); e != nil && e.known != nil {
			return e.known, true
		}
	}
	return nil, false
}

// A ranked entry is a copy of one, with its weights as of now.
type rankedEntry struct {
	hash                    uint64
	count, uncertain, other float64
	profile
}

// ranked returns the first top entries of both sketches, by what is certain of them, and forgets what is faint by now.
func (c *callers) ranked(r *Recorder, now int64, top int) (spending, refused []rankedEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range []*sketch{&c.spending, &c.refused} {
		s.at(now)
		s.prune(r)
	}
	return c.spending.ranked(top, &c.refused), c.refused.ranked(top, &c.spending)
}

// prune drops the entries that are faint by now.
func (s *sketch) prune(r *Recorder) {
	for i := len(s.entries) - 1; i >= 0; i-- {
		if s.counts[i]/s.scale < faint {
			dropped := s.remove(i)
			r.drop(&dropped)
		}
	}
}

// ranked copies the first top entries. What s does not rank by is taken from beside where that knows more.
func (s *sketch) ranked(top int, beside *sketch) []rankedEntry {
	type place struct {
		least, count float64
		index        int
	}
	var room [capacity]place
	places := room[:len(s.entries)]
	for i := range places {
		places[i] = place{s.counts[i] - s.entries[i].error, s.counts[i], i}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(b.least, a.least), cmp.Compare(b.count, a.count), cmp.Compare(s.hashes[a.index], s.hashes[b.index]))
	})
	places = places[:min(len(places), top)]
	out := make([]rankedEntry, len(places))
	for i, p := range places {
		e := &s.entries[p.index]
		ranked := rankedEntry{hash: s.hashes[p.index], count: p.count / s.scale, other: e.other / s.scale, profile: e.profile}
		ranked.uncertain = (e.error + 3*math.Sqrt(e.variance)) / s.scale
		if b, count := beside.find(ranked.hash); b != nil {
			ranked.other = max(ranked.other, (count-b.error)/beside.scale)
			ranked.spent, ranked.refusals = max(e.spent, b.spent), max(e.refusals, b.refusals)
			ranked.since = min(e.since, b.since)
		}
		out[i] = ranked
	}
	return out
}
