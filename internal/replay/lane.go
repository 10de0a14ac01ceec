package replay

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"net/http"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/target"
	"github.com/weirlimit/weir/memstore"
)

// A lane is one policy, and the results of the requests under it.
type lane struct {
	replay  *Replay
	name    string
	policy  weir.Policy
	now     int64 // the store's clock, in Unix nanoseconds
	store   *memstore.Store
	decider *weir.Decider
	// for requests with an unknown agent, see unknown.go; nil: no window counts by agent
	agentless *weir.Decider
	pool      *pool
	waiting   *waiting // nil: refused requests are not sent again

	limiters map[*weir.Limiter]*limiter // by the decider's rules
	ordered  []*limiter                 // in the order of the policy

	scratch      *weir.Scratch
	flights      flights
	decision     weir.Decision
	verdict      verdict
	covers       *limiter // the present request's limiter; nil: none
	tried        verdict  // the strictest verdict of limiters in shadow on the present request
	agentUnknown bool     // whether agentless decides the present request

	triesAgents bool // a limiter in shadow counts by agent

	requests  int64
	unlimited int64
	shadow    Shadow
	refused   int64
	denied    int64 // of refused
	rejected  int64 // of refused, those that lack the credential that their limiter requires
	unknown   int64
	points    *points
}

// A verdict is the result of the present request in a lane.
type verdict uint8

const (
	uncovered verdict = iota // no enforced limiter covers it
	admitted
	unknown // a window that counts by agent might have refused it
	refused
)

// A limiter is the results of one limiter.
type limiter struct {
	rules   *weir.Limiter
	windows []window
	// for each window, the first that counts by the same key: it counts the refusals of callers
	leaders  []int
	special  bool // it has exemptions, denied callers or overrides
	requests int64
	refused  int64
	denied   int64 // of refused
	rejected int64 // of refused, as in lane
	punished int64 // of refused, those of callers under a penalty
	unknown  int64 // requests that it admits except for windows that cannot be decided
	hidden   int64 // requests that such a window should have counted
	points   *points
	worst    worst
	lacks    [maxSources]int64
	delay    *delay

	settlement settlement
}

// A window is the results of one window of a limiter.
type window struct {
	rules       *weir.Window
	inAgentless *weir.Window   // the same window of the agentless decider
	copies      []*weir.Window // the same window in deciders that copy it
	byAgent     bool           // its key names the agent
	charge      weir.Charge    // how long the window is, and when it ends
	refused     int64
	unknown     int64  // requests with an unknown agent, which it has not counted
	peak        uint32 // over all callers
	// overrides with the window's own limit, which a Standing does not distinguish
	own     []weir.Override
	callers callers
}

// newLane compiles a policy. memory is in bytes.
func (r *Replay) newLane(name string, p weir.Policy, memory int64) (*lane, error) {
	l := &lane{replay: r, name: name, policy: p, pool: newPool(memory / 2), points: r.timeline.newPoints(), limiters: make(map[*weir.Limiter]*limiter), scratch: new(weir.Scratch)}
	share := memory / 2
	if r.options.Paced {
		share, l.pool = memory*3/8, newPool(memory*3/8)
		l.waiting = newWaiting(l, memory/4)
	}
	if slices.ContainsFunc(p.Limiters, func(l weir.Limiter) bool { return l.Settles() }) {
		l.flights.left = memory / 8
		l.pool.left -= memory / 8
	}
	var err error
	if l.store, err = memstore.New(memstore.Options{Memory: share, Now: func() time.Time { return time.Unix(0, l.now) }}); err != nil {
		return nil, err
	}
	if l.decider, err = weir.New(p, l.store, weir.Options{OnShadow: l.shadowed, OnSettled: l.settled}); err != nil {
		_ = l.store.Close()
		return nil, err
	}
	if err = l.openAgentless(); err != nil {
		_ = l.store.Close()
		return nil, err
	}
	for i := range p.Limiters {
		l.ordered = append(l.ordered, l.newLimiter(&p.Limiters[i]))
	}
	return l, nil
}

func (l *lane) newLimiter(rules *weir.Limiter) *limiter {
	rows := rules.Rows()
	s := &limiter{rules: rules, windows: make([]window, len(rows)), points: l.replay.timeline.newPoints()}
	s.worst.size = l.replay.options.Worst
	s.special = len(rules.Exempt)+len(rules.Deny)+len(rules.Overrides) > 0
	for i := range rows {
		w := &rows[i]
		s.windows[i] = window{rules: w, byAgent: w.Key.Uses(identity.Agent), callers: callers{pool: l.pool}}
		s.windows[i].charge.Per = int64(w.Per / time.Second)
		s.windows[i].charge.Ends, _ = weir.NewEnds(rules, w) // the decider has accepted the policy
		for _, o := range rules.Overrides {
			if o.Changes(w) && o.Limit == w.Limit {
				s.windows[i].own = append(s.windows[i].own, o)
			}
		}
		leader := i
		for j := range i {
			if rows[j].Key.String() == w.Key.String() {
				leader = j
				break
			}
		}
		s.leaders = append(s.leaders, leader)
	}
	return s
}

// of returns the results of a limiter of the decider, or of the agentless decider while that
// decides.
func (l *lane) of(rules *weir.Limiter) *limiter {
	s := l.limiters[rules]
	if s == nil {
		s = l.named(rules.Name)
		l.limiters[rules] = s
		if l.agentUnknown {
			s.mapAgentless(rules)
			return s
		}
		s.rules = rules // the decider's own copy: its standings point to it
		rows := rules.Rows()
		for i := range s.windows {
			s.windows[i].rules = &rows[i]
		}
	}
	return s
}

// named returns the results of the limiter with a name.
func (l *lane) named(name string) *limiter {
	return l.ordered[slices.IndexFunc(l.ordered, func(s *limiter) bool { return s.rules.Name == name })]
}

// mapAgentless maps the limiter's windows to those of the agentless decider: the ones that do not
// name the agent, in order.
func (s *limiter) mapAgentless(rules *weir.Limiter) {
	next, rows := 0, rules.Rows()
	for i := range s.windows {
		if w := &s.windows[i]; !w.byAgent {
			w.inAgentless = &rows[next]
			next++
		}
	}
}

// add decides the present request, after it has resent the waiting requests whose time has come.
func (l *lane) add(choice, agentless *target.Choice) error {
	r := l.replay
	if err := l.until(r.now); err != nil {
		return err
	}
	l.now, l.verdict, l.covers, r.caller.rejected = r.now, uncovered, nil, false
	l.requests++
	l.points.request(&r.timeline)
	choice = l.choose(choice, agentless)
	rules := choice.Match.Limiter()
	if rules == nil {
		l.unlimited++
		if !choice.Match.HasTrials() {
			return nil
		}
	}
	l.tried = uncovered
	request := weir.Request{Keys: &r.caller, Match: choice.Match, Cost: r.end.reserve(rules), Scratch: l.scratch}
	r.caller.lacks, r.caller.public = 0, choice.Kind != target.Plain
	r.caller.asks(choice.Match)
	lacks := r.caller.Lacks(r.caller.requires)
	if lacks && rules.Reserve.From.Form == weir.ReadJSON { // its body is not read
		request.Cost = rules.Reserve.Units(0, max(rules.Cost, 1))
	}
	if err := l.current().DecideInto(context.Background(), &request, &l.decision); err != nil {
		return fmt.Errorf("replay under policy %q: %w", l.name, err)
	}
	l.noteShadow()
	if rules == nil {
		if l.tried != uncovered {
			l.shadow.Alone++
		}
		l.begin(&l.scratch, l.current(), r.end)
		return nil
	}
	l.verdict = admitted
	s := l.of(rules)
	l.covers = s
	e := r.end
	if r.caller.rejected = lacks && l.decision.Allowed; r.caller.rejected {
		e = end{status: cmp.Or(l.policy.Answers.Unauthenticated.Status, http.StatusUnauthorized), cost: -1}
		l.current().KeepReserved(l.scratch)
	}
	s.count(r, &l.decision, l.scratch.Who)
	s.noteEnd(&l.decision, e)
	defer l.begin(&l.scratch, l.current(), e) // waiting reads the scratch
	if l.agentUnknown && s.noteUnknown(&l.decision) && !r.caller.rejected {
		l.verdict = unknown
		l.unknown++
		return nil
	}
	if l.decision.Allowed && !r.caller.rejected {
		return nil
	}
	l.verdict = refused
	l.refused++
	l.points.refuse(&r.timeline)
	switch {
	case l.decision.Outcome == weir.Denied: // it is not sent again
		l.denied++
	case r.caller.rejected: // nor is this one
		l.rejected++
	case l.waiting != nil:
		l.waiting.add(s, &l.decision)
	}
	return nil
}

// current returns the decider of the present request.
func (l *lane) current() *weir.Decider {
	if l.agentUnknown {
		return l.agentless
	}
	return l.decider
}

// noteShadow counts the present request in the totals of the limiters in shadow.
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

// shadowed counts the decision of a limiter in shadow, which counts its requests alone. A refused
// request that is sent again is not shown to it twice.
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
	s.noteEnd(v.Decision, r.end)
	lacks, match := r.caller.lacks, r.caller.match
	r.caller.lacks, r.caller.rejected = 0, false
	r.caller.asks(v.Match)
	if plans := &s.rules.Plans; len(plans.List) > 0 {
		r.caller.Plan(plans.By) // which the decision asked for too
	}
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
	r.caller.asks(match)
	if l.agentUnknown && s.noteUnknown(v.Decision) {
		l.tried = max(l.tried, unknown)
	}
}

// count records one request of a limiter. who returns the bytes that a window counts the caller by.
func (s *limiter) count(r *Replay, d *weir.Decision, who func(of *weir.Standing) []byte) {
	s.requests++
	s.points.request(&r.timeline)
	refused := !d.Allowed || r.caller.rejected
	if refused {
		s.refused++
		if r.caller.rejected {
			s.rejected++
		}
		if slices.ContainsFunc(d.Standings(), func(w weir.Standing) bool { return w.Penalty }) {
			s.punished++
		}
		s.points.refuse(&r.timeline)
	}
	if d.Outcome == weir.Denied {
		s.denied++ // no window has counted it
		return
	}
	var entries [weir.MaxWindows + 1]*entry // with the limit in flight
	var hashes [weir.MaxWindows + 1]uint64
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
	if !refused {
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

// indexOf returns the index of a standing's window, or -1 for the standing of a limiter whose
// windows are all unknown.
func (s *limiter) indexOf(w *weir.Window) int {
	windows := s.windows
	for i := range windows {
		if windows[i].rules == w || windows[i].inAgentless == w {
			return i
		}
	}
	if s.rules.InFlight.Limit == 0 {
		return -1
	}
	for i := range windows {
		if slices.Contains(windows[i].copies, w) {
			return i
		}
	}
	text := w.String()
	for i := range windows {
		if windows[i].rules.String() == text {
			windows[i].copies = append(windows[i].copies, w)
			return i
		}
	}
	return -1
}

// costOf returns what a request of a cost spends of the window.
func (w *window) costOf(cost int64) int64 {
	if w.rules.Requests {
		return min(cost, 1)
	}
	return cost
}

// count records one request of the window, and returns its caller's entry.
func (w *window) count(r *Replay, s *limiter, d *weir.Decision, of *weir.Standing, hash uint64) *entry {
	e := w.callers.at(hash, r.second)
	e.requests = plus(e.requests, 1)
	if w.rules.InFlight || s.rules.SettlesUnits() {
		w.countSettling(r, d, of, e)
		return e
	}
	if e.reset <= r.second {
		e.reset, e.demand = uint32(w.charge.End(int64(r.second))), 0
	}
	cost := uint32(w.costOf(d.Cost))
	asked := plus(e.demand, cost)
	switch {
	case !s.special && len(s.rules.Plans.List) == 0 || w.follows(r, d, of):
		if !e.has(follows) {
			// What others have spent of the budget, according to the engine; usually nothing.
			before := of.Count
			if d.Allowed {
				before -= int64(cost)
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
	// its spending makes others refused; a refused request spends nothing
	case d.Exempt || int64(asked) <= of.Limit:
		e.demand = asked
	}
	w.peak = max(w.peak, asked)
	if !d.Allowed && of.Refused {
		w.refused++
		w.callers.mark(e, touched)
	}
	return e
}

// countSettling records one request of a window whose units come back: a limit in flight, or a
// window of a limiter that settles. The peak is then not the sum of what a caller has asked for,
// but the highest count of the engine, which has none of the refused requests.
func (w *window) countSettling(r *Replay, d *weir.Decision, of *weir.Standing, e *entry) {
	e.reset, e.demand = uint32(of.Reset), uint32(min(of.Count, 1<<32-1))
	e.peak = max(e.peak, e.demand)
	w.peak = max(w.peak, e.demand)
	if !d.Allowed && of.Refused {
		w.refused++
		w.callers.mark(e, touched)
	}
}

// follows reports whether a change of the window's limit would change the present caller's.
func (w *window) follows(r *Replay, d *weir.Decision, of *weir.Standing) bool {
	if d.Exempt || of.Limit != w.rules.Limit || r.hasPlan(of.Limiter, w.rules) {
		return false
	}
	for _, o := range w.own {
		if o.For.Networks != nil {
			if o.For.Networks.Contains(r.caller.Addr().Unmap().WithZone("")) {
				return false
			}
		} else if o.For.Token != "" {
			if id, ok := r.caller.AppendKey(r.key[:0], identity.Token); ok && string(id) == o.For.Token {
				return false
			}
		} else if o.For.Network.Contains(r.caller.Addr()) {
			return false
		}
	}
	return true
}

// plus adds without overflow.
func plus(a, b uint32) uint32 {
	if a > 1<<32-1-b {
		return 1<<32 - 1
	}
	return a + b
}
