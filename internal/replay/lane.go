package replay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/target"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/policyfile"
)

// A lane is one policy, and what becomes of the requests under it.
type lane struct {
	replay  *Replay
	name    string
	policy  weir.Policy
	now     int64 // the store's clock, in Unix nanoseconds
	store   *memstore.Store
	decider *weir.Decider
	blind   *weir.Decider // of requests whose agent the log does not tell, see unknown.go; nil: no window counts by agent
	pool    *pool
	waiting *waiting // nil: refused requests are not sent again

	limiters map[*weir.Limiter]*limiter // as the decider has them
	ordered  []*limiter                 // as the policy has them

	scratch  weir.Scratch
	decision weir.Decision
	verdict  verdict
	covers   *limiter // the present request; nil: none
	tried    verdict  // what the limiters say of it that are tried out
	unsure   bool     // blind decides it

	triesAgents bool // a limiter in shadow counts by agent

	requests  int64
	unlimited int64
	shadow    Shadow
	refused   int64
	unknown   int64
	points    *points
}

// A verdict is what became of the present request in a lane.
type verdict uint8

const (
	uncovered verdict = iota // no limiter that is enforced covers it
	admitted
	unknown // a window that counts by agent might have refused it
	refused
)

// A limiter is what one limiter did.
type limiter struct {
	rules    *weir.Limiter
	windows  []window
	leaders  []int // for each window, the first that counts by the same key: it notes who was refused
	special  bool  // it makes a difference between callers
	requests int64
	refused  int64
	unknown  int64 // requests that it admits, but for windows that cannot be judged
	hidden   int64 // requests that such a window should have counted
	points   *points
	worst    worst
	lacks    [maxSources]int64
	delay    *delay
}

// A window is what one window of a limiter did.
type window struct {
	rules   *weir.Window
	inBlind *weir.Window // the same of the blind decider
	byAgent bool         // its key names the agent
	per     uint32
	refused int64
	unknown int64           // requests whose agent is unknown, which it has not counted
	peak    uint32          // of any caller
	own     []weir.Override // as high as the window's own limit, so that a Standing does not tell who has one
	callers callers
}

// newLane compiles a policy. memory is in bytes.
func (r *Replay) newLane(name string, p weir.Policy, memory int64) (*lane, error) {
	l := &lane{replay: r, name: name, policy: p, pool: newPool(memory / 2), points: r.timeline.newPoints(), limiters: make(map[*weir.Limiter]*limiter)}
	share := memory / 2
	if r.options.Paced {
		share, l.pool = memory*3/8, newPool(memory*3/8)
		l.waiting = newWaiting(l, memory/4)
	}
	var err error
	if l.store, err = memstore.New(memstore.Options{Memory: share, Now: func() time.Time { return time.Unix(0, l.now) }}); err != nil {
		return nil, err
	}
	if l.decider, err = weir.New(p, l.store, weir.Options{OnShadow: l.shadowed}); err != nil {
		_ = l.store.Close()
		return nil, err
	}
	if err = l.openBlind(); err != nil {
		_ = l.store.Close()
		return nil, err
	}
	for i := range p.Limiters {
		l.ordered = append(l.ordered, l.newLimiter(&p.Limiters[i]))
	}
	return l, nil
}

func (l *lane) newLimiter(rules *weir.Limiter) *limiter {
	s := &limiter{rules: rules, windows: make([]window, len(rules.Windows)), points: l.replay.timeline.newPoints()}
	s.worst.most = l.replay.options.Worst
	s.special = len(rules.Exempt)+len(rules.Overrides) > 0
	for i := range rules.Windows {
		w := &rules.Windows[i]
		s.windows[i] = window{rules: w, byAgent: w.Key.Uses(identity.Agent), per: uint32(w.Per / time.Second), callers: callers{pool: l.pool}}
		for _, o := range rules.Overrides {
			if o.Changes(w) && o.Limit == w.Limit {
				s.windows[i].own = append(s.windows[i].own, o)
			}
		}
		leader := i
		for j := range i {
			if rules.Windows[j].Key.String() == w.Key.String() {
				leader = j
				break
			}
		}
		s.leaders = append(s.leaders, leader)
	}
	return s
}

// of returns what is known of a limiter of the decider's, or of the blind one's while that decides.
func (l *lane) of(rules *weir.Limiter) *limiter {
	s := l.limiters[rules]
	if s == nil {
		i := slices.IndexFunc(l.ordered, func(s *limiter) bool { return s.rules.Name == rules.Name })
		s = l.ordered[i]
		l.limiters[rules] = s
		if l.unsure {
			s.knowBlind(rules)
			return s
		}
		s.rules = rules // the decider's own copy: its standings point into it
		for i := range s.windows {
			s.windows[i].rules = &rules.Windows[i]
		}
	}
	return s
}

// knowBlind notes which windows are the limiter's in the blind decider: those that do not name the
// agent, in their order.
func (s *limiter) knowBlind(rules *weir.Limiter) {
	next := 0
	for i := range s.windows {
		if w := &s.windows[i]; !w.byAgent {
			w.inBlind = &rules.Windows[next]
			next++
		}
	}
}

// add judges the present request, and sends those again before it whose time has come.
func (l *lane) add(choice, blind *target.Choice) error {
	r := l.replay
	if l.waiting != nil {
		if err := l.waiting.until(r.now); err != nil {
			return err
		}
	}
	l.now, l.verdict, l.covers = r.now, uncovered, nil
	l.requests++
	l.points.request(&r.timeline)
	choice = l.sees(choice, blind)
	rules := choice.Match.Limiter()
	if rules == nil {
		l.unlimited++
		if !choice.Match.Beside() {
			return nil
		}
	}
	l.tried = uncovered
	request := weir.Request{Keys: &r.caller, Match: choice.Match, Scratch: &l.scratch}
	r.caller.lacks = 0
	if err := l.judge().DecideInto(context.Background(), &request, &l.decision); err != nil {
		return fmt.Errorf("replay under policy %q: %w", l.name, err)
	}
	l.noteShadow()
	if rules == nil {
		if l.tried != uncovered {
			l.shadow.Alone++
		}
		return nil
	}
	l.verdict = admitted
	s := l.of(rules)
	l.covers = s
	s.count(r, &l.decision, l.scratch.Who)
	if l.unsure && s.noteUnknown(&l.decision) {
		l.verdict = unknown
		l.unknown++
		return nil
	}
	if l.decision.Allowed {
		return nil
	}
	l.verdict = refused
	l.refused++
	l.points.refuse(&r.timeline)
	if l.waiting != nil {
		l.waiting.add(s, &l.decision)
	}
	return nil
}

// judge returns the decider of the present request.
func (l *lane) judge() *weir.Decider {
	if l.unsure {
		return l.blind
	}
	return l.decider
}

// noteShadow counts the present request among those of all limiters that are tried out.
func (l *lane) noteShadow() {
	if l.tried == uncovered {
		return
	}
	l.shadow.Requests++
	switch l.tried {
	case refused:
		l.shadow.Refused++
	case unknown:
		l.shadow.Unknown++
	}
}

// shadowed counts what a limiter that is tried out says. Its requests are nobody's but its own. A request that was refused and is sent
// again is not shown to it twice.
func (l *lane) shadowed(v weir.Shadowed) {
	if v.Decision == nil || v.Decision.Outcome == weir.Unlimited {
		return
	}
	l.tried = max(l.tried, admitted)
	if !v.Decision.Allowed {
		l.tried = refused
	}
	r := l.replay
	s := l.of(v.Limiter)
	lacks := r.caller.lacks
	r.caller.lacks = 0
	s.count(r, v.Decision, func(of *weir.Standing) []byte {
		key := r.key[:0]
		for _, part := range of.Window.Key {
			var source string
			start := len(key)
			source, key = weir.CountedBy(append(key, 0, 0, 0, 0), part, &r.caller)
			n := len(key) - start
			key[start], key[start+1], key[start+2], key[start+3] = byte(len(source)), byte(n), byte(n>>8), byte(n>>16)
			key = append(key, source...)
		}
		r.key = key
		return key
	})
	r.caller.lacks = lacks
	if l.unsure && s.noteUnknown(v.Decision) {
		l.tried = max(l.tried, unknown)
	}
}

// count notes one request of a limiter. who tells the bytes that a window counts the caller by.
func (s *limiter) count(r *Replay, d *weir.Decision, who func(of *weir.Standing) []byte) {
	s.requests++
	s.points.request(&r.timeline)
	if !d.Allowed {
		s.refused++
		s.points.refuse(&r.timeline)
	}
	var entries [weir.MaxWindows]*entry
	var hashes [weir.MaxWindows]uint64
	standings := d.Standings()
	binding := 0
	for i := range standings {
		of := &standings[i]
		at := s.indexOf(of.Window)
		if at < 0 {
			continue
		}
		if i == 0 {
			binding = at
		}
		hashes[at] = maphash.Bytes(r.seed, who(of))
		entries[at] = s.windows[at].count(r, s, d, of, hashes[at])
	}
	if lacks := r.caller.lacks; lacks != 0 {
		for place := range r.sources.all {
			if lacks>>place&1 != 0 {
				s.lacks[place]++
			}
		}
	}
	if d.Allowed {
		return
	}
	lead := s.leaders[binding]
	e := entries[lead]
	if e.refused == 0 {
		e.first = r.second
	}
	e.refused = plus(e.refused, 1)
	s.worst.note(&s.windows[lead].callers, e, hashes[lead], lead, r.second, func(dst []byte) []byte {
		return r.namer.name(dst, s.windows[lead].rules.Key, &r.caller)
	})
}

// indexOf returns which window a standing is of; -1 for the one that a limiter has whose windows
// are all unknown.
func (s *limiter) indexOf(w *weir.Window) int {
	windows := s.windows
	for i := range windows {
		if windows[i].rules == w || windows[i].inBlind == w {
			return i
		}
	}
	return -1
}

// count notes what one request asked of the window, and returns its caller's entry.
func (w *window) count(r *Replay, s *limiter, d *weir.Decision, of *weir.Standing, hash uint64) *entry {
	e := w.callers.at(hash, r.second)
	e.requests = plus(e.requests, 1)
	if e.reset <= r.second {
		e.reset, e.demand = r.second+w.per, 0
	}
	cost := uint32(d.Cost)
	asked := plus(e.demand, cost)
	switch {
	case !s.special || w.follows(r, d, of):
		if !e.has(follows) {
			// What others spent of the budget so far, as the engine has it; nearly always nothing.
			before := of.Count
			if d.Allowed {
				before -= d.Cost
			}
			w.callers.mark(e, follows)
			e.peak, e.demand = 0, uint32(min(max(before, 0), 1<<32-1))
			asked = plus(e.demand, cost)
		}
		e.demand = asked
		e.peak = max(e.peak, asked)
	case !e.has(follows):
		e.demand = asked
		e.peak = max(e.peak, asked)
	case d.Exempt || int64(asked) <= of.Limit: // others are refused for what it spends; what it is refused it does not spend
		e.demand = asked
	}
	w.peak = max(w.peak, asked)
	if !d.Allowed && of.Refused {
		w.refused++
		w.callers.mark(e, touched)
	}
	return e
}

// follows reports whether the present caller would have another limit if the window had.
func (w *window) follows(r *Replay, d *weir.Decision, of *weir.Standing) bool {
	if d.Exempt || of.Limit != w.rules.Limit {
		return false
	}
	for _, o := range w.own {
		if o.For.Token != "" {
			if id, ok := r.caller.AppendKey(r.key[:0], "token"); ok && string(id) == o.For.Token {
				return false
			}
		} else if o.For.Network.Contains(r.caller.Addr()) {
			return false
		}
	}
	return true
}

// plus adds without spilling.
func plus(a, b uint32) uint32 {
	if a > 1<<32-1-b {
		return 1<<32 - 1
	}
	return a + b
}

// version tells a policy from others, as package live does.
func version(p weir.Policy) string {
	sum := sha256.Sum256(policyfile.Marshal(p))
	return hex.EncodeToString(sum[:4])
}
