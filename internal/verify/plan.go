package verify

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// Defaults of Options.
const (
	DefaultBudget  = 12_000
	DefaultMaxWait = 2 * time.Minute
	DefaultWorkers = 8
)

// Requests other than those that use a budget up, each at most.
const (
	forSessions = 4              // two sessions, and a second try for each
	forLook     = 40             // timeline.look
	forSpent    = 92             // timeline.trySpent
	forRestored = 30             // rollover.go
	forValue    = 70             // clause_value.go, tryEachSource; for each source
	forPenalty  = 24             // clause_penalty.go, from its beginning to its end
	forErrors   = 5              // timeline.provoke
	forChance   = 2 * maxRepeats // attempt.go, each with a plain one
	forParts    = 24             // pause.go, in addition to the budget
	forLost     = 6              // requests without an answer
	drainTwice  = 120            // the largest budget that is used up twice
)

// A Plan is what a verification will send, before it sends anything.
type Plan struct {
	Requests int      // at most
	Lines    []string // in words: what will be sent, where, how often, and how long it takes
	Skipped  []Result // what cannot be tested, as known before

	options  Options
	routes   *weir.Routes
	parts    []*part
	sessions bool // two are created at init
}

// A part is what one limiter's verification sends.
type part struct {
	limiter   *weir.Limiter
	endpoints []endpoint
	segments  map[string]string // made-up values in the endpoints' paths, by source (path:NAME)
	window    weir.Window       // the window that is used up: it allows the fewest requests
	cost      int64             // of one request, in units
	drain     int               // requests that use it up
	over      int               // requests after that, if nothing is refused
	again     int               // requests that use it up a second time; 0: it is used up once
	last      int               // requests that are under way together in a budget of their own
	penalized bool              // the penalty is begun, and its end waited for
	light     bool              // the cost of a request is not known before its answer
	late      bool              // others' requests may be charged to it, so it comes last
}

// minRequests returns how many requests the part needs at least.
func (p *part) minRequests(quick bool) int {
	if p.penalized {
		return forLook + 2*(p.drain+p.over) + 2*int(p.limiter.Penalty.After) + forPenalty + forErrors + forLost
	}
	if p.light {
		return forLook + p.drain + p.over + forErrors + forLost + p.forHeld() + p.last
	}
	n := forLook + p.forHeld() + p.last + p.drain + p.over + forSpent + forChance + forErrors + forLost + forValue*p.values()
	if !quick {
		n += forRestored + forParts
	}
	return n
}

// values returns how many of the sources that the limiter counts by, or is found by, are written
// into requests.
func (p *part) values() (n int) {
	if p.endpoints[0].sited && !slices.Contains(sourcesOf(p.limiter), sourceHost) {
		n++
	}
	for _, source := range sourcesOf(p.limiter) {
		if hasValue(source) {
			n++
		}
	}
	return n
}

// maxRequests returns how many requests the part sends at most.
func (p *part) maxRequests(quick bool) int { return p.minRequests(quick) + p.again }

// lengthsOf returns the lengths of the limiter's windows that have a limit, for some callers at
// least.
func (p *part) lengthsOf(limit int64) []time.Duration {
	var lengths []time.Duration
	for i := range p.limiter.Windows {
		if w := &p.limiter.Windows[i]; p.canHave(w, limit) {
			lengths = append(lengths, w.Per)
		}
	}
	return lengths
}

// canHave reports whether a window has a limit for some callers at least.
func (p *part) canHave(w *weir.Window, limit int64) bool {
	l := p.limiter
	return w.Limit == limit || slices.ContainsFunc(l.Overrides, func(o weir.Override) bool { return o.Changes(w) && o.Limit == limit }) ||
		slices.ContainsFunc(l.Plans.List, func(plan weir.Plan) bool { return plan.Of(w) == limit })
}

// hasCalendar reports whether a window of the limiter is a calendar's, whose spans can be shorter
// or longer than Per.
func (p *part) hasCalendar() bool {
	return slices.ContainsFunc(p.limiter.Windows, func(w weir.Window) bool { return w.Calendar.Unit != 0 })
}

// longestOf returns the longest that a window of the limiter can be, if one of those lengths is
// its.
func (p *part) longestOf(lengths []time.Duration) time.Duration {
	if p.hasCalendar() {
		return weir.MaxSpan
	}
	return slices.Max(lengths)
}

// isAmbiguous reports whether several windows have a limit, so answers do not show which of them
// they describe.
func (p *part) isAmbiguous(limit int64) bool { return len(p.lengthsOf(limit)) > 1 }

// isDrained reports whether an answer with that limit describes the window that is used up,
// whatever other limits this caller has.
func (p *part) isDrained(limit int64) bool {
	return limit == p.window.Limit && !p.isAmbiguous(limit)
}

// whole returns the budget that an answer describes: its own limit if the policy has it.
func (p *part) whole(a *answer) int64 {
	if len(p.lengthsOf(a.limit)) == 0 {
		return p.window.Limit
	}
	return a.limit
}

// hasOtherLimits reports whether some callers have other limits than the windows' own: the verifier
// may be one of them, and takes its limits from the answers.
func (p *part) hasOtherLimits() bool {
	return len(p.limiter.Overrides)+len(p.limiter.Plans.List) > 0
}

// countsByAgent reports whether a window of the limiter is counted by the agent.
func (p *part) countsByAgent() bool {
	return slices.ContainsFunc(p.limiter.Windows, func(w weir.Window) bool { return w.Key.Uses(sourceAgent) })
}

// limitsInWords lists the limiter's windows.
func (p *part) limitsInWords() string {
	text := ""
	for i, w := range p.limiter.Windows {
		if i > 0 {
			text += " and "
		}
		text += rateInWords(w)
	}
	if p.hasOtherLimits() {
		text += ", and others for some callers"
	}
	return text
}

// NewPlan plans a verification. It sends nothing. It returns an error for invalid options, and a
// *weir.PolicyError for an invalid policy.
func NewPlan(o Options) (*Plan, error) {
	o, err := withDefaults(o)
	if err != nil {
		return nil, fmt.Errorf("plan a verification: %w", err)
	}
	routes, err := weir.NewRoutes(o.Policy)
	if err != nil {
		return nil, err
	}
	p := &Plan{options: o, routes: routes}
	for i := range o.Policy.Limiters {
		if l := &o.Policy.Limiters[i]; len(o.Limiters) == 0 || slices.Contains(o.Limiters, l.Name) {
			p.consider(l)
		}
	}
	p.order()
	p.fit()
	p.write()
	return p, nil
}

func withDefaults(o Options) (Options, error) {
	switch {
	case o.URL == nil || o.URL.Host == "" || o.URL.Scheme != "http" && o.URL.Scheme != "https":
		return o, errors.New("the URL of the API is required, with http or https and a host: https://api.example.com")
	case o.URL.User != nil || o.URL.RawQuery != "" || o.URL.Fragment != "":
		return o, errors.New("the URL of the API has a user, a query or a fragment: scheme, host and path are allowed")
	case o.Budget < 0:
		return o, fmt.Errorf("a budget of %d requests: a positive number is allowed, or 0 for %d", o.Budget, DefaultBudget)
	case o.Workers < 0 || o.Workers > 1000:
		return o, fmt.Errorf("%d workers: 1 to 1000 are allowed, or 0 for %d", o.Workers, DefaultWorkers)
	case o.MaxWait < 0:
		return o, fmt.Errorf("a longest wait of %v: a positive duration is allowed, or 0 for %v", o.MaxWait, DefaultMaxWait)
	}
	for _, name := range o.Limiters {
		if !slices.ContainsFunc(o.Policy.Limiters, func(l weir.Limiter) bool { return l.Name == name }) {
			return o, fmt.Errorf("limiter %q: the policy has %s", name, strings.Join(limiterNames(o.Policy), ", "))
		}
	}
	if o.Budget == 0 {
		o.Budget = DefaultBudget
	}
	if o.Workers == 0 {
		o.Workers = DefaultWorkers
	}
	if o.MaxWait == 0 {
		o.MaxWait = DefaultMaxWait
	}
	if o.SessionAt == "" {
		o.SessionAt = "token"
	}
	return o, nil
}

func limiterNames(p weir.Policy) []string {
	var names []string
	for i := range p.Limiters {
		names = append(names, p.Limiters[i].Name)
	}
	return names
}

// consider makes a part for a limiter, or records why there is none.
func (p *Plan) consider(l *weir.Limiter) {
	if l.Mode == weir.Shadow {
		p.skip(l.Name, Unobservable, "it is in shadow mode, which cannot be seen from outside")
		return
	}
	if len(l.Routes) == 0 {
		p.skip(l.Name, Unobservable, "it has no routes: requests that name it do not come over HTTP")
		return
	}
	if why := p.options.strangeSource(l); why != "" {
		p.skip(l.Name, Unobservable, why)
		return
	}
	segments := freshSegments(l)
	endpoints := endpointsOf(p.routes, l, segments, p.options.URL.Host)
	if len(endpoints) == 0 {
		p.skip(l.Name, Unobservable, "no request was found that it covers: more specific routes cover all that were tried")
		return
	}
	if endpoints = slices.DeleteFunc(endpoints, func(e endpoint) bool { return !p.options.Real && !e.harmless() }); len(endpoints) == 0 {
		p.skip(l.Name, NeedsInput, "its requests change data, and have no body that validation could refuse: they are sent only with --real")
		return
	}
	w := &part{limiter: l, endpoints: endpoints, segments: segments, cost: max(l.Cost, 1)}
	w.chooseWindow()
	if w.hasWindows() {
		w.drain = int(w.window.Limit / w.cost)
	}
	w.over = max(2*p.options.Workers, min(w.drain/10, 100))
	w.light = !w.whyUnknownCost(&p.options).isZero()
	w.last = w.forBurst(&p.options)
	if !w.light && w.drain <= drainTwice && !p.options.Quick && w.window.Per <= p.options.MaxWait {
		w.again = w.drain + w.over
	}
	if after := l.Penalty.After; after > 0 && after <= int64(w.maxRequests(p.options.Quick)) {
		if l.Settles() {
			p.skip(l.Name, NeedsMore, "it has a penalty, and units or slots of its requests come back, so it is not known when the tests would begin it: verify the same policy without the penalty")
			return
		}
		if why := p.whyNotPenalized(w); !why.isZero() {
			p.skip(l.Name, why.reason, why.text)
			return
		}
		w.penalized, w.again = true, 0
	}
	w.late = p.isFallback(l)
	p.parts = append(p.parts, w)
	if credentialOf(l) == sourceSession && len(p.options.Sessions) == 0 && p.options.Agent != "" {
		p.sessions = true
	}
}

// whyNotPenalized returns why the penalty of a limiter, which its tests would begin, cannot be
// followed to its end. The zero gap means that it can.
func (p *Plan) whyNotPenalized(w *part) gap {
	penalty, rest := w.limiter.Penalty, ""
	switch {
	case p.options.Quick:
		rest = "none is waited for (quick)"
	case max(penalty.For, w.window.Per) > p.options.MaxWait:
		rest = fmt.Sprintf("the longest wait is %v", p.options.MaxWait)
	default:
		return gap{}
	}
	return NeedsMore.because("it has a penalty, which its tests would begin: after %s all requests are refused for %s, and %s; verify the same policy without it",
		penalty.Refusals(), penalty.RefuseFor(), rest)
}

// isFallback reports whether requests for other limiters may be charged to this one: errors near
// their endpoints, and preflights.
func (p *Plan) isFallback(l *weir.Limiter) bool {
	for i := range p.options.Policy.Limiters {
		other := &p.options.Policy.Limiters[i]
		if other.Name == l.Name {
			continue
		}
		for _, r := range other.Routes {
			for _, mine := range l.Routes {
				if mine.Prefix && begins(r.Path, mine.Path) && coversHost(mine, r.Host) {
					return true
				}
			}
		}
	}
	return l.Name == preflightLimiter
}

// skip records that no clause can be tested on a limiter.
func (p *Plan) skip(limiter string, reason Reason, why string) {
	for _, c := range Clauses {
		p.Skipped = append(p.Skipped, Result{Clause: c.ID, Limiter: limiter, Verdict: Untested, Reason: reason, Detail: why})
	}
}

// order puts the smallest first, so that a budget too small for all tests most of them.
func (p *Plan) order() {
	slices.SortStableFunc(p.parts, func(a, b *part) int { return a.minRequests(true) - b.minRequests(true) })
}

// fit removes the parts that exceed the budget, and adds up the rest.
func (p *Plan) fit() {
	quick, total := p.options.Quick, 0
	if p.sessions {
		total = forSessions
	}
	total += p.forCredentials()
	need := total // including all smaller parts, whether they fit or not
	var fitting []*part
	for _, w := range p.parts {
		if need += w.minRequests(quick); need > p.options.Budget {
			p.skip(w.limiter.Name, NeedsMore, fmt.Sprintf("%d units per %v take up to %d requests: a budget of %d is enough", w.window.Limit, w.window.Per, w.minRequests(quick), need))
			continue
		}
		total = need
		fitting = append(fitting, w)
	}
	for _, w := range fitting {
		if total+w.again > p.options.Budget {
			w.again = 0
		}
		total += w.again
	}
	p.parts = fitting
	if len(fitting) == 0 {
		p.sessions, total = false, 0
	}
	p.Requests = total
}

// write writes the plan in words.
func (p *Plan) write() {
	add := func(format string, args ...any) { p.Lines = append(p.Lines, fmt.Sprintf(format, args...)) }
	if n := p.forCredentials(); n > 0 {
		add("at most %d requests to check that the given credentials verify", n)
	}
	if p.sessions {
		add("POST %s, at most %d requests, for two sessions of agent %s", initPath, forSessions, p.options.Agent)
	}
	for _, w := range p.parts {
		if slots := w.slots(); w.forHeld() > 0 {
			add("%s: up to %d of its requests are held under way together, on connections of their own: others of the same caller are refused meanwhile", w.limiter.Name, slots+1)
		}
		if w.last > 0 {
			add("%s: up to %d of its requests are held under way together in one more window, whose budget is used up", w.limiter.Name, maxHeld)
		}
		if !w.hasWindows() {
			add("%s: at most %d requests, most of them %s%s", w.limiter.Name, w.maxRequests(p.options.Quick), w.endpoints[0], p.bodyInWords(w.endpoints[0]))
			continue
		}
		add("%s: at most %d requests, most of them %s%s; %s are used up%s", w.limiter.Name, w.maxRequests(p.options.Quick), w.endpoints[0],
			p.bodyInWords(w.endpoints[0]), rateInWords(w.window), p.waitInWords(w))
		if made := p.options.madeUp(w.limiter); len(made) > 0 {
			add("%s: the requests have made-up values of %s", w.limiter.Name, strings.Join(made, " and "))
		}
		for _, longer := range w.limiter.Windows {
			if longer.Limit != w.window.Limit || longer.Per != w.window.Per {
				add("%s: its %s are not used up", w.limiter.Name, rateInWords(longer))
			}
		}
	}
	for _, s := range p.Skipped {
		if s.Clause == Clauses[0].ID {
			add("%s: not tested: %s", s.Limiter, s.Detail)
		}
	}
	waits := ""
	if span := p.span(); span > 0 {
		waits = fmt.Sprintf(", in about %v plus the time that they take", span)
	}
	add("at most %d requests over %d connections%s", p.Requests, p.options.Workers, waits)
}

// rateInWords returns a window without its key: 30 per minute.
func rateInWords(w weir.Window) string {
	rate, _, _ := strings.Cut(w.String(), " by ")
	return rate
}

func (p *Plan) bodyInWords(e endpoint) string {
	switch {
	case e.method != "POST" && e.method != "PUT" && e.method != "PATCH":
		return ""
	case !p.options.Real:
		return " with a body that validation refuses"
	case e.valid == "":
		return " with the body {}, since no valid one is known"
	}
	return " with a valid body, which may be stored"
}

func (p *Plan) waitInWords(w *part) string {
	switch {
	case p.options.Quick || w.light:
		return ", and nothing is waited for"
	case w.window.Per > p.options.MaxWait:
		return fmt.Sprintf(", and not waited for, since %v is more than %v", w.window.Per, p.options.MaxWait)
	case w.penalized:
		return fmt.Sprintf("; %s begin its penalty of %s, which is waited for", w.limiter.Penalty.Refusals(), w.limiter.Penalty.RefuseFor())
	case w.again > 0:
		return fmt.Sprintf(", waited for (up to %v) and used up again", w.window.Per)
	}
	return fmt.Sprintf(" and waited for (up to %v)", w.window.Per)
}

// span returns how long the waits for windows take. The late parts follow the others.
func (p *Plan) span() time.Duration {
	var early, late time.Duration
	for _, w := range p.parts {
		if p.options.Quick || w.light || w.window.Per > p.options.MaxWait {
			continue
		}
		length := w.window.Per
		if w.penalized {
			length = max(length, w.limiter.Penalty.For)
		}
		if w.late {
			late = max(late, length)
		} else {
			early = max(early, length)
		}
	}
	return early + late
}
