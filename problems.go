package weir

import (
	"fmt"
	"slices"
	"strings"
)

// Problems returns all problems of the policy, in its order. If there are none, New accepts it.
// sources are the known key sources; if nil, any name is accepted.
func (p Policy) Problems(sources []Source) []Problem {
	_, problems := compile(p, sources)
	return problems
}

// Error returns all problems, one a line.
func (e *PolicyError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, problem := range e.Problems {
		lines[i] = problem.in(e.Policy)
	}
	return strings.Join(lines, "\n")
}

func (x Problem) in(p Policy) string {
	if x.Limiter < 0 || x.Limiter >= len(p.Limiters) {
		return "policy: " + x.Message
	}
	return fmt.Sprintf("limiter %q: %s", p.Limiters[x.Limiter].Name, x.Message)
}

// A checker collects the problems of one policy.
type checker struct {
	sources  []Source
	problems []Problem
	limiter  int
	windows  int // of the limiter
}

func (c *checker) add(field string, index int, value, format string, args ...any) {
	if field == "windows" && index >= 0 && index == c.windows { // the row after the windows
		field, index = "in_flight", -1
	}
	c.problems = append(c.problems, Problem{c.limiter, field, index, value, fmt.Sprintf(format, args...)})
}

func (c *checker) checkLimiter(l *Limiter, names map[string]int) {
	if !isName(l.Name) {
		c.add("name", -1, l.Name, "name %q: lower-case letters, digits and dashes are allowed, a letter first, at most 64 characters", l.Name)
	} else if _, taken := names[l.Name]; taken {
		c.add("name", -1, l.Name, "name %q is taken by an earlier limiter: names are unique, since counts are kept under them", l.Name)
	}
	rows := l.Rows()
	c.windows = len(l.Windows)
	if len(rows) == 0 {
		c.add("windows", -1, "", "no windows: at least one is needed, such as: 60 per minute by ip; or in_flight, such as: 10 by ip")
	}
	if len(l.Windows) > MaxWindows {
		c.add("windows", -1, "", "%d windows: at most %d are allowed", len(l.Windows), MaxWindows)
	}
	c.checkCost(l)
	for i := range rows {
		c.checkWindow(l, rows, i)
	}
	c.checkSettling(l)
	c.checkChosen(l)
	c.checkSpecial(l)
	c.checkPenalty(l)
	c.checkAnswers(l)
	c.checkNotify(l)
	c.checkPlans(l)
	if l.Requires != "" && !slices.Contains(Credentials(), l.Requires) {
		c.add("requires", -1, l.Requires, "requires %q: %s are allowed", l.Requires, strings.Join(Credentials(), ", "))
	}
	if l.Align > AlignClock {
		c.add("align", -1, l.Align.String(), "align %v is unknown: request and clock are allowed", l.Align)
	}
	if !slices.Contains(FailureModes(), l.OnStoreFailure) {
		c.add("on_store_failure", -1, l.OnStoreFailure.String(), "on_store_failure %v is unknown: %s", l.OnStoreFailure, failureModesAllowed)
	}
}

func (c *checker) checkCost(l *Limiter) {
	value := fmt.Sprint(l.Cost)
	if l.Cost < 0 || l.Cost > MaxLimit {
		c.add("cost", -1, value, "cost %d is out of range: 1 to %d is allowed", l.Cost, MaxLimit)
		return
	}
	for _, w := range l.Windows {
		if w.Limit > 0 && l.Cost > w.Limit && !w.Requests {
			why := "no request could ever be served; lower the cost or raise the limit"
			if l.Reserve.From != (Reading{}) {
				why = "a request reserves at most its caller's limit; lower at_most or raise the limit"
			}
			c.add("cost", -1, value, "%s %d exceeds the limit of %q: %s", l.costWord(), l.Cost, w, why)
			return
		}
	}
}

func (c *checker) checkWindow(l *Limiter, rows []Window, i int) {
	w := rows[i]
	if w.Limit < 1 || w.Limit > MaxLimit {
		c.add("windows", i, w.String(), "limit %d is out of range: 1 to %d is allowed", w.Limit, MaxLimit)
	}
	if w.InFlight {
		if i < len(l.Windows) {
			c.add("windows", i, w.String(), "%q: a window is no limit in flight: set InFlight of the limiter", w)
		}
	} else if w.Calendar != (Calendar{}) {
		c.checkCalendar(i, w)
	} else if err := lengthProblem(w.Per); err != nil {
		c.add("windows", i, w.String(), "length %v is out of range: %v", w.Per, err)
	}
	if len(w.Key) == 0 {
		c.add("windows", i, w.String(), "no key: add what is counted by, such as: by ip")
	}
	for _, part := range w.Key {
		if len(part) == 0 {
			c.add("windows", i, w.String(), "an empty part of the key: add what is counted by, such as: by ip")
		}
		for _, source := range part {
			c.checkSource(i, source)
		}
	}
	c.checkReached(i, w)
	c.checkParameters(l, w.Key, i)
	for j := range i {
		if o := rows[j]; o.Per == w.Per && o.Requests == w.Requests && o.Calendar.String() == w.Calendar.String() && o.Key.String() == w.Key.String() {
			c.add("windows", i, w.String(), "%q and %q have the same length and key: only the lower limit would ever count; remove one", w, o)
			return
		}
	}
}

// checkReached rejects keys in which a source has no effect: one that the key has twice, one after
// a source that every caller has, and the source of all callers beside another part.
func (c *checker) checkReached(index int, w Window) {
	for i, part := range w.Key {
		if slices.ContainsFunc(w.Key[:i], func(p Part) bool { return len(p) > 0 && slices.Equal(p, part) }) {
			c.add("windows", index, part.String(), "%q: %s joined to itself divides nothing; write %q", w, part, w.Key.distinct())
			return
		}
	}
	for _, part := range w.Key {
		reached, unreached := part.reached()
		switch distinct := part.distinct(); {
		case len(distinct) < len(part):
			advice := fmt.Sprintf("write %q", distinct)
			if _, rest := distinct.reached(); len(rest) > 0 {
				advice = distinct.reordered()
			}
			twice := part.repeated()
			c.add("windows", index, twice, "%q: %s is an alternative to itself; %s", w, twice, advice)
		case len(unreached) > 0:
			last := reached[len(reached)-1]
			c.add("windows", index, last, "%q: %s comes before %q, which can never be reached, since %s; %s",
				w, last, unreached, inCommon[last], part.reordered())
		case len(w.Key) > 1 && len(part) > 0 && part[0] == everyoneSource:
			c.add("windows", index, everyoneSource, "%q: everyone joined to other key sources changes nothing, since it is the same for all callers; leave it out, or give everyone a window of its own", w)
		}
	}
}

// distinct returns the key with each of its parts once.
func (k Key) distinct() (out Key) {
	for _, p := range k {
		if !slices.ContainsFunc(out, func(o Part) bool { return slices.Equal(o, p) }) {
			out = append(out, p)
		}
	}
	return out
}

// distinct returns the part with each of its sources once.
func (p Part) distinct() (out Part) {
	for _, s := range p {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// repeated returns the first source that the part has a second time, or "".
func (p Part) repeated() string {
	for i, s := range p {
		if slices.Contains(p[:i], s) {
			return s
		}
	}
	return ""
}

// inCommon has the sources that every caller has, and why.
var inCommon = map[string]string{addressSource: "every caller has an address", everyoneSource: "everyone is what all callers have"}

// reached splits a part after the first source that every caller has: alternatives that follow it
// are never used.
func (p Part) reached() (reached, unreached Part) {
	at := slices.IndexFunc(p, func(s string) bool { return inCommon[s] != "" })
	if at < 0 {
		return p, nil
	}
	return p[:at+1], p[at+1:]
}

// reordered returns advice on a part with sources that are never reached, and with no source twice.
func (p Part) reordered() string {
	reached, unreached := p.reached()
	last := len(reached) - 1
	better := slices.Clone(reached[:last])
	for _, s := range unreached {
		if inCommon[s] == "" {
			better = append(better, s)
		}
	}
	if len(better) == last {
		return fmt.Sprintf("leave out %q, or %q", reached[last], unreached)
	}
	return fmt.Sprintf("write %q", append(better, reached[last]))
}

func (c *checker) checkSource(window int, source string) {
	canonical, err := canonicalSource(source)
	switch {
	case err != nil:
		c.add("windows", window, source, "key source %v", err)
		return
	case canonical != source:
		c.add("windows", window, source, "key source %q: write it as %q, so that one field has one budget", source, canonical)
		return
	case c.sources == nil:
		return
	}
	if _, ok := FindSource(c.sources, source); ok {
		return
	}
	c.add("windows", window, source, "key source %q is unknown: %s are allowed", source, SourceNames(c.sources))
}

// checkShadows rejects a policy in which more than MaxShadows limiters in Shadow mode cover one
// request.
func (c *checker) checkShadows(to *compiled) {
	if to.all == nil || len(c.problems) > 0 {
		return
	}
	methods := map[string]bool{"": true}
	shadowed := meetings{left: maxMeetings}
	for i := range to.policy.Limiters {
		for _, r := range to.policy.Limiters[i].Routes {
			methods[r.Method] = true
			if to.policy.Limiters[i].Mode == Shadow {
				shadowed.routes = append(shadowed.routes, folded(r.Path))
			}
		}
	}
	for i := range to.policy.Limiters {
		l := &to.policy.Limiters[i]
		if l.Mode != Shadow {
			continue
		}
		c.limiter = i
		for j, r := range l.Routes {
			if n := to.all.of(r.Host).maxShadows(shadowed.paths(folded(r.Path)), methods); n > MaxShadows {
				c.add("routes", j, r.String(), "route %q: %d limiters in mode shadow cover the same paths here: at most %d are allowed; try them out in a candidate policy", r, n, MaxShadows)
				return
			}
		}
	}
}

// maxShadows returns the max number of limiters in Shadow mode that cover one request for any of
// the folded paths or for a path that continues it. An enforced limiter may hide shadows at the
// path alone.
func (at *site) maxShadows(paths []string, methods map[string]bool) (n int) {
	for _, path := range paths {
		for method := range methods {
			for _, follows := range [...]string{"", "\x00", "/\x00"} { // no route has a NUL
				met := make(map[*limiter]bool)
				at.walk(method, path+follows, func(by *cover) bool {
					if by.limiter.Mode == Shadow {
						met[by.limiter] = true
					}
					return by.limiter.Mode == Shadow
				})
				n = max(n, len(met))
			}
		}
	}
	return n
}
