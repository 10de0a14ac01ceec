// Package explain answers questions about a policy without counting anything: which limiter covers
// a request, what it counts the request by, and why (Request); and how many requests a limiter lets
// pass at most (Exposure).
package explain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/target"
)

// An Explanation is what becomes of one request.
type Explanation struct {
	Method string `json:"method"`
	Host   string `json:"host,omitempty"` // empty: not given
	Path   string `json:"path"`           // as sent
	// the form of the path by which it is counted; empty: none, it is answered 400
	Canonical string `json:"canonical,omitempty"`
	Limiter   string `json:"limiter,omitempty"` // empty: none covers the request
	Route     string `json:"route,omitempty"`
	// what is reserved at most, if CostFrom is set
	Cost int64 `json:"cost,omitempty"`
	// where the request tells its cost, as in "json:max_tokens, times 2, plus 500"
	Reserve  string `json:"reserve,omitempty"`
	CostFrom string `json:"cost_from,omitempty"` // where the response tells it
	// "status 401, 403" or "not 5xx"; empty: every request
	Counts   string          `json:"counts,omitempty"`
	Requires string          `json:"requires,omitempty"` // a credential; empty: none
	Answers  string          `json:"answers,omitempty"`  // "usage"; empty: the backend answers
	Message  *Message        `json:"message,omitempty"`  // of the limiter's 429
	Windows  []CountedWindow `json:"windows"`
	Why      []string        `json:"why"` // the rules that led there, a sentence each
}

// A Message is the English text of a refusal, with its placeholders.
type Message struct {
	Name string `json:"name"`
	Text string `json:"text"` // in English
}

// A SpelledWindow is a window with its parts spelled out.
type SpelledWindow struct {
	Window     string     `json:"window"` // as a policy writes it
	Limit      int64      `json:"limit"`
	PerSeconds int64      `json:"per_seconds,omitempty"` // absent for a calendar
	Calendar   string     `json:"calendar,omitempty"`    // as a policy writes it
	Requests   bool       `json:"requests,omitempty"`    // it counts requests, whatever they cost
	InFlight   bool       `json:"in_flight,omitempty"`   // it is a limit on requests under way
	Key        [][]string `json:"key"`                   // parts, each its alternatives in order
}

// SpellOut returns a window with its parts spelled out.
func SpellOut(w weir.Window) SpelledWindow {
	v := SpelledWindow{Window: w.String(), Limit: w.Limit, Calendar: w.Calendar.String(), Requests: w.Requests, InFlight: w.InFlight}
	if v.Calendar == "" {
		v.PerSeconds = int64(w.Per / time.Second)
	}
	for _, part := range w.Key {
		v.Key = append(v.Key, part)
	}
	return v
}

// A CountedWindow is a window and what it counts one caller by, for each part of its key.
type CountedWindow struct {
	SpelledWindow
	Counted []Counted `json:"counted"`
	// CallerLimit is the limit that the caller has in place of Limit; 0: none. LimitBy is what sets
	// it, in words: "plan gold", or an override with the network that has the caller.
	CallerLimit int64  `json:"caller_limit,omitempty"`
	LimitBy     string `json:"limit_by,omitempty"`
	// PlanLimit is CallerLimit if the caller's plan sets it; else 0.
	PlanLimit int64 `json:"plan_limit,omitempty"`
}

// A Counted value is what one part of a key counts a caller by.
type Counted struct {
	Source string `json:"source"`
	Value  string `json:"value"`
	Note   string `json:"note,omitempty"` // which credentials the caller lacks
}

// A Server is what the server that gets a request does with it. The zero value is one without
// flags.
type Server struct {
	Paths target.Paths // which form of a path its upstream receives
}

// Request explains a request to a Server without flags.
func Request(p weir.Policy, method, sent string, who Caller) (*Explanation, error) {
	return Server{}.Request(p, method, sent, who)
}

// Request explains a request under a policy without problems. sent is the path as a client sends
// it, with its escapes and perhaps a query.
func (s Server) Request(p weir.Policy, method, sent string, who Caller) (*Explanation, error) {
	d, err := weir.New(p, uncounted{}, weir.Options{Sources: identity.Sources()})
	if err != nil {
		return nil, err
	}
	host := who.values[identity.Host]
	e := &Explanation{Method: method, Host: host, Path: sent, Windows: []CountedWindow{}}
	escaped, query, hasQuery := strings.Cut(sent, "?")
	asked := target.Request{Method: method, Host: host, Ambiguous: identity.AgentIsAmbiguous(query), Query: query}
	if err := s.read(&asked, e, escaped); err != nil { // it is rejected, and still counted (D10)
		e.because("%v: backends differ in how they read that, so it is answered 400 invalid_request, and charged to the surface's fallback", err)
		var unreadable target.Choice
		target.Choose(d, &target.Request{Method: method, Host: host, Raw: escaped}, &unreadable)
		e.fill(&p, unreadable.Match, who)
		return e, nil
	}
	var choice target.Choice
	target.Choose(d, &asked, &choice)
	switch choice.Kind {
	case target.Unreadable:
		e.Canonical, e.Why = "", nil
		e.because("backends read %s in several ways, which lead to different limiters or parameters, so it is answered 400 invalid_request, and charged to the surface's fallback", escaped)
		e.fill(&p, choice.Match, who)
		return e, nil
	case target.Health:
		e.because("the gateway answers health checks itself, outside all limits")
		return e, nil
	case target.AmbiguousQuery:
		what := "the agent in the query differently: without X-Agent-Id"
		if choice.Parameter != "" {
			what = choice.Parameter + " in the query differently:"
		}
		e.because("servers read %s it is answered 400 invalid_request, and charged to the surface's fallback", what)
		e.fill(&p, choice.Match, who)
		return e, nil
	}
	if choice.Kind == target.UnknownMethod {
		e.because("a server answers %[1]s with 405, and counts it all the same, unless --methods %[1]s has it accept the method", method)
	}
	if hasQuery {
		e.because("the query does not affect the choice")
		if l := choice.Match.Limiter(); l != nil {
			who.values = maps.Clone(who.values)
			who.setQuery(l, query)
		}
	}
	e.fill(&p, choice.Match, who)
	return e, e.explainRoutes(p, host, asked.Path, choice.Match, d.CatchAll(host, asked.Path))
}

// read sets the path of a request, and explains by which form it is counted. The error is why it
// has none: a *target.PathError.
func (s Server) read(asked *target.Request, e *Explanation, escaped string) error {
	if s.Paths == target.AsSent && strings.HasPrefix(escaped, "/") {
		if err := asked.ReadAsSent(escaped); err != nil {
			return err
		}
		if e.Canonical = escaped; asked.Sent != "" {
			e.Canonical = asked.Counted()
			e.because("%s is counted as %s, with all escapes decoded and every slash between segments, and the backend receives it as sent", escaped, e.Canonical)
		}
		return nil
	}
	path, decoded, err := target.Decode(escaped)
	if err != nil {
		return err
	}
	if asked.Path, e.Canonical = decoded, path; path != escaped {
		e.because("%s is another spelling of %s: dot segments are resolved, empty segments removed, needless escapes undone; the backend receives this form", escaped, path)
	}
	return nil
}

// uncounted is a store for a Decider that only chooses limiters.
type uncounted struct{}

func (uncounted) Take(context.Context, []weir.Charge, *weir.Receipt) error {
	return errors.New("an explanation counts nothing")
}

// Settle makes it a store that any policy can be counted in.
func (uncounted) Settle(context.Context, *weir.Ticket, []weir.Change) error {
	return errors.New("an explanation settles nothing")
}

func (e *Explanation) because(format string, args ...any) {
	e.Why = append(e.Why, fmt.Sprintf(format, args...))
}

// fill adds what the limiter of a match does, if there is one.
func (e *Explanation) fill(p *weir.Policy, m weir.Match, who Caller) {
	l := m.Limiter()
	if l == nil {
		return
	}
	name := answer.MessageOf(&p.Responses, l)
	text, _ := answer.Text(&p.Responses, name)
	e.Limiter, e.Route, e.Cost = l.Name, m.Route().String(), max(l.Cost, 1)
	e.Message = &Message{name, text}
	for _, name := range m.Route().Parameters() {
		value, _ := m.Parameter(name)
		who.Set(identity.Path+":"+name, value)
		e.because("{%s} covers one segment, here %q", name, value)
	}
	for _, w := range l.Rows() {
		counted := CountedWindow{SpelledWindow: SpellOut(w)}
		for _, part := range w.Key {
			counted.Counted = append(counted.Counted, who.count(part))
		}
		e.Windows = append(e.Windows, counted)
	}
	if e.Answers = l.Answers.String(); l.Answers == weir.AnswerUsage {
		e.because("answered by Weir: usage; to GET and HEAD it shows the caller's windows, and the backend never gets the request")
	}
	e.Requires = l.Requires
	e.explainSettling(p, l)
	e.explainOutcomes(p, l, who)
	e.explainEnds(l)
	if l.Chosen {
		e.because("chosen: yes: the caller chooses a value that a window counts by, so it has a new budget for each value that it makes up")
	}
	denied := false
	for _, x := range l.Deny {
		if who.is(x) {
			e.because("%s is denied: answered 403, and not counted", x.For(who.addr))
			denied = true
		}
	}
	for _, x := range l.Exempt {
		switch {
		case who.is(x) && denied:
			e.because("%s is exempt, which has no effect on a denied caller", x.For(who.addr))
		case who.is(x):
			e.because("%s is exempt: counted, and never refused", x.For(who.addr))
		}
	}
	e.explainPlans(l, who)
	if !denied {
		e.explainLimits(m, &who)
	}
}

// explainLimits adds the limits that the caller has, as a decision finds them, and which overrides
// set them.
func (e *Explanation) explainLimits(m weir.Match, who *Caller) {
	holding := map[string]bool{}
	for i, held := range m.CallerLimits(asked{who}) {
		w := &e.Windows[i]
		switch {
		case held.Override != nil:
			w.CallerLimit, w.LimitBy = held.Limit, "override "+who.spellOverride(held.Override)
			holding[held.Override.String()] = true
		case held.Plan != "":
			w.CallerLimit, w.LimitBy, w.PlanLimit = held.Limit, "plan "+held.Plan, held.Limit
		}
	}
	for i := range m.Limiter().Overrides {
		o := &m.Limiter().Overrides[i]
		switch {
		case !who.is(o.For):
		case holding[o.String()]:
			e.because("override %s holds: it is the most specific one, and an override has priority over a plan", who.spellOverride(o))
		default:
			e.because("override %s applies too, and another one holds: a token comes before an address, a longer network before a shorter one, and of equally long ones that of the policy before a file's, and the first file before others", who.spellOverride(o))
		}
	}
}

// explainEnds adds which windows end by the clock.
func (e *Explanation) explainEnds(l *weir.Limiter) {
	for _, w := range l.Windows {
		switch {
		case w.Calendar.Unit != 0:
			e.because("%s ends with its calendar %v, by the store's clock, whenever its first request came", w, w.Calendar.Unit)
		case l.Align == weir.AlignClock:
			e.because("%s ends at the next whole multiple of its length since 1970-01-01 00:00 UTC (align: clock), by the store's clock", w)
		}
	}
}

// explainRoutes adds why the route of m was chosen for a decoded path, and what the others do.
func (e *Explanation) explainRoutes(p weir.Policy, host, path string, m, fallback weir.Match) error {
	routes, err := weir.NewRoutes(p)
	if err != nil {
		return err
	}
	all := routes.Covering(e.Method, host, path)
	covering := map[owned]bool{}
	for _, c := range all {
		covering[owned{c.Limiter().Name, c.Route()}] = true
	}
	e.explainRoute(p, path, m, covering)
	if host == "" {
		e.explainHosts(p, routes, path)
	}
	if m.HasTrials() {
		e.explainShadows(p, all)
	}
	e.explainMethod(fallback.Limiter())
	return nil
}

// An owned route is one with the name of its limiter: a limiter in shadow mode may have a route
// that another has too.
type owned struct {
	limiter string
	route   weir.Route
}

// explainRoute adds why the route of m covers the path, and why it beats the others that do (D8,
// D9).
func (e *Explanation) explainRoute(p weir.Policy, path string, m weir.Match, covering map[owned]bool) {
	if m.Limiter() == nil {
		e.because("no route covers it")
		return
	}
	won := m.Route()
	switch {
	case strings.HasPrefix(won.Host, "*"):
		e.because("%s names all hosts under %s, so it comes before routes that name no host", won, won.Host[2:])
	case won.Host != "":
		e.because("%s names this host, so it comes before routes that name another, or none", won)
	}
	switch {
	case filledIn(m) != path && !won.Prefix:
		e.because("%s also covers what follows it after / or . or ;, in letters of any case: a backend may take that for the same endpoint", won)
	case won.Prefix:
		e.because("%s covers every path that begins with %s, and the bare prefix", won, won.Path)
	}
	for _, l := range p.Limiters {
		for _, r := range l.Routes {
			if r != won && l.Mode == weir.Enforce && covering[owned{l.Name, r}] {
				e.because("%s beats %s (%s): %s", won, r, l.Name, advantage(won, r))
			}
		}
	}
}

// explainHosts adds the first route that names a host and covers the path there, for a request
// whose host is not known.
func (e *Explanation) explainHosts(p weir.Policy, routes *weir.Routes, path string) {
	for _, l := range p.Limiters {
		for _, r := range l.Routes {
			at := strings.Replace(r.Host, "*", "-", 1) // a name under the star
			if r.Host != "" && routes.Match(e.Method, at, path).Route() == r {
				e.because("no host is given: on %s it is covered by %s (%s)", r.Host, r, l.Name)
				return
			}
		}
	}
}

// filledIn returns the path of a match's route with the values of its parameters.
func filledIn(m weir.Match) string {
	path := m.Route().Path
	for _, name := range m.Route().Parameters() {
		value, _ := m.Parameter(name)
		path = strings.Replace(path, "{"+name+"}", value, 1)
	}
	return path
}

// advantage names the rule by which won is the more specific of two routes that cover a path.
func advantage(won, lost weir.Route) string {
	switch {
	case won.Host != lost.Host && lost.Host == "":
		return "a route that names the host beats one that names none"
	case won.Host != lost.Host && won.Host[0] != '*':
		return "the name of the host beats a star"
	case won.Host != lost.Host:
		return "the longer name after a star beats the shorter one"
	case moreLiteral(won.Path, lost.Path):
		return "from the left, literal text beats a parameter"
	case !won.Prefix && lost.Prefix:
		return "a literal path beats a prefix"
	case depth(won) > depth(lost):
		return "the longer path beats the shorter one"
	case won.Method != "" && lost.Method == "":
		return "a route with a method beats one without"
	}
	return "it is the more specific one"
}

// moreLiteral reports whether a path has literal text where another one, which covers the same
// request, first has a parameter in its place.
func moreLiteral(path, other string) bool {
	theirs := strings.Split(other, "/")
	for i, segment := range strings.Split(path, "/") {
		if i == len(theirs) {
			break
		}
		mine, yours := strings.HasPrefix(segment, "{"), strings.HasPrefix(theirs[i], "{")
		if mine != yours && segment != "" && theirs[i] != "" {
			return yours
		}
	}
	return false
}

// depth returns the length of a route's path without the names of its parameters.
func depth(r weir.Route) int {
	n := len(r.Path)
	for _, name := range r.Parameters() {
		n -= len(name)
	}
	return n
}

// explainShadows adds the limiters in shadow mode that judge the request beside the one that is
// enforced. covering is in the order of specificity.
func (e *Explanation) explainShadows(p weir.Policy, covering []weir.Match) {
	tried := map[string]weir.Route{}
	for _, c := range covering {
		l := c.Limiter()
		if l.Mode != weir.Shadow {
			break
		}
		if _, ok := tried[l.Name]; !ok {
			tried[l.Name] = c.Route()
		}
	}
	for _, l := range p.Limiters {
		if r, ok := tried[l.Name]; ok {
			e.because("%s (%s, mode shadow) counts it too, and refuses nothing", r, l.Name)
		}
	}
}

// explainMethod adds what becomes of a method that is special (D9, D10). fallback may be nil.
func (e *Explanation) explainMethod(fallback *weir.Limiter) {
	switch upper := strings.ToUpper(e.Method); {
	case e.Method == http.MethodOptions && fallback != nil:
		e.because("with Origin and Access-Control-Request-Method it is a CORS preflight: the gateway answers it, and charges it to %s", fallback.Name)
	case e.Method != upper:
		e.because("methods are case-sensitive: %s is not %s, and is answered 405", e.Method, upper)
	}
}
