package verify

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
)

// checkValue sends main's value of each source in other spellings, and together with another value.
// While main's budget is spent, each must be refused, or be counted like a request without a value:
// never by a budget of its own.
func checkValue(clause *check) hooks {
	c := &valueCheck{check: clause}
	return hooks{readsCount: true, needsRefusals: true, tries: c.tries, why: func() gap {
		if len(c.counted()) == 0 && !c.who.noHost.isZero() && slices.Contains(sourcesOf(c.part.limiter), sourceHost) {
			return c.who.noHost
		}
		if l := c.part.limiter; len(c.counted()) == 0 && slices.ContainsFunc(sourcesOf(l), hasValue) {
			return Unobservable.because("the window of %d does not count by what another one counts by", c.part.window.Limit)
		}
		if len(c.counted()) == 0 {
			return inherently("it counts by no field, cookie, parameter or host")
		}
		return gap{}
	}}
}

type valueCheck struct {
	*check
	refused, none int  // spellings that were refused, and that were counted as no value
	misdirected   int  // of those that were refused: spellings of the host that are answered 421
	ended         bool // the window ended before all were tested
	unclear       string
}

// counted returns the sources of main's window whose value is written into the request, and the
// host if the route names it: no spelling of it may choose another limiter.
func (c *valueCheck) counted() (all []string) {
	if c.part.endpoints[0].sited {
		all = append(all, sourceHost)
	}
	for _, source := range countedBy(c.part.window.Key, c.who.has) {
		if hasValue(source) && c.who.valueOf(source) != "" && !slices.Contains(all, source) {
			all = append(all, source)
		}
	}
	return all
}

func (c *valueCheck) tries(ctx context.Context, t *tally) error {
	sources := c.counted()
	if len(sources) == 0 || c.verdict() == Broken {
		return nil
	}
	for _, source := range sources {
		for _, s := range c.spellings(source) {
			if ok, err := c.try(ctx, t, source, s); err != nil || !ok {
				return err
			}
		}
	}
	switch {
	case c.unclear != "":
		c.untested(Unobservable.because("with %s the answers do not show whose budget was charged", c.unclear))
	case c.misdirected > 0:
		c.untested(Unobservable.because("%d spellings of the host are answered 421 Misdirected Request, so whose budget they would spend cannot be seen", c.misdirected))
	case c.ended:
		c.untested(NeedsMore.because("the window ended before all spellings could be tested"))
	default:
		c.kept("%d spellings of %s: %d refused or answered as something else, %d counted like a request without a value",
			c.refused+c.none, strings.Join(sources, " and "), c.refused, c.none)
	}
	return nil
}

// try sends one spelling. It is not ok after a verdict.
func (c *valueCheck) try(ctx context.Context, t *tally, source string, s valueSpelling) (ok bool, err error) {
	got, a, none := stillRefused, (*answer)(nil), false
	if s.same {
		a, got, err = c.attempt(ctx, t, s.request)
	} else {
		a, got, none, err = c.attemptDoubtful(ctx, t, source, s.request)
	}
	switch {
	case err != nil:
		return false, err
	case none:
		c.none++
	case got == windowEnded:
		c.ended = true
	case got == byChance:
		c.unclear = s.says
	case got == stillRefused && source == sourceHost && s.same && a.complete() && len(c.part.lengthsOf(a.limit)) == 0:
		c.broken(a, "refused with the limit %d for %s: a spelling is counted by another limiter", a.limit, s.says)
		return false, nil
	case got == escaped && (!s.same || c.seen.isOtherBudget(t, a)):
		c.broken(a, "answered %d with Remaining %d for %s, while it is refused: a spelling has a budget of its own", a.status, a.remaining, s.says)
		return false, nil
	default:
		if c.refused++; a != nil && a.status == http.StatusMisdirectedRequest {
			c.misdirected++
		}
	}
	return true, nil
}

// attemptDoubtful sends a request whose value may count as none. none reports that it was counted
// like one without a value. The outcome is byChance if the answers do not show it.
func (c *valueCheck) attemptDoubtful(ctx context.Context, t *tally, source string, r request) (a *answer, got outcome, none bool, err error) {
	if a, err = c.sendCalm(ctx, r); err != nil || !a.admitted() || c.seen.isTrouble(a) || !c.seen.isOtherBudget(t, a) {
		return a, stillRefused, false, err
	}
	lacking := c.lacking(source)
	for range 2 {
		all := make([]*answer, 0, 3)
		for _, x := range []request{lacking, r, lacking} {
			if a, err = c.send(ctx, x); err != nil {
				return nil, 0, false, err
			}
			all = append(all, a)
		}
		before, between, after := all[0], all[1], all[2]
		switch {
		case slices.ContainsFunc(all, c.part.isUncounted):
			continue // it has taken nothing of any budget in the end
		case !before.complete() || !between.complete() || !after.complete() || before.reset != after.reset || before.admitted() != after.admitted(),
			c.part.mixesUnits() && (before.limit != between.limit || before.limit != after.limit):
			continue // its window ended meanwhile
		case !between.admitted() && between.reset == before.reset, between.limit == before.limit && between.reset == before.reset &&
			before.remaining > between.remaining && between.remaining > after.remaining:
			return between, stillRefused, true, nil
		}
		got, err = c.confirmEscape(ctx, t, r)
		return between, got, false, err
	}
	return a, byChance, false, nil
}

// lacking returns main's request without a value of a source.
func (c *valueCheck) lacking(source string) request {
	main := c.who.main
	main.chosen = nil
	for other, value := range c.who.main.chosen {
		if other != source {
			main = main.valued(other, value)
		}
	}
	r := c.requestOf(main)
	switch name, field := weir.SplitSource(source); name {
	case sourceHeader:
		return r.with(field, "")
	case sourceCookie:
		return r.with("Cookie", c.otherCookies(source))
	}
	return r
}

// otherCookies returns main's cookies without that of a source.
func (c *valueCheck) otherCookies(source string) string {
	line := c.plain().fields["Cookie"]
	if line == "" {
		line = c.run.options.cookies()
	}
	_, name := weir.SplitSource(source)
	return withoutCookie(line, name)
}

// A valueSpelling is main's request with its value written in another way.
type valueSpelling struct {
	says    string
	request request
	same    bool // it is the same value to every reader, so the request must be refused
}

func (c *valueCheck) spellings(source string) []valueSpelling {
	value, other := c.who.valueOf(source), freshValue(source)
	switch name, field := weir.SplitSource(source); name {
	case sourceHeader:
		return c.fieldSpellings(field, value, other)
	case sourceCookie:
		return c.cookieSpellings(source, field, value, other)
	case sourceQuery:
		return c.parameterSpellings(source, field, value, other)
	case sourceHost:
		return c.hostSpellings(value, other)
	}
	return c.segmentSpellings(source, value)
}

func (c *valueCheck) fieldSpellings(field, value, other string) (all []valueSpelling) {
	add := func(says string, same bool, lines map[string][]string) {
		r := c.plain()
		r.lines = lines
		all = append(all, valueSpelling{says, r, same})
	}
	small := strings.ToLower(field)
	add(small+" in lower case", true, map[string][]string{small: {value}})
	add(field+" twice", false, map[string][]string{field: {value, value}})
	add(field+" twice, another value first", false, map[string][]string{field: {other, value}})
	add(field+" twice, another value second", false, map[string][]string{field: {value, other}})
	add(field+" and "+small+" with another value", false, map[string][]string{field: {value}, small: {other}})
	return all
}

func (c *valueCheck) cookieSpellings(source, name, value, other string) (all []valueSpelling) {
	rest := c.otherCookies(source)
	add := func(says string, same bool, lines ...string) {
		r := c.plain()
		r.lines = map[string][]string{"Cookie": lines}
		all = append(all, valueSpelling{says, r, same})
	}
	mine, theirs := name+"="+value, name+"="+other
	add("the cookie "+name+" after others", true, joined(rest, "; ", "weir-verify=1; "+mine))
	add("the cookie "+name+" in quotes", false, joined(rest, "; ", name+`="`+value+`"`))
	add("the cookie "+name+" twice", false, joined(rest, "; ", mine+"; "+mine))
	add("the cookie "+name+" twice, another value first", false, joined(rest, "; ", theirs+"; "+mine))
	add("the cookie "+name+" twice, another value second", false, joined(rest, "; ", mine+"; "+theirs))
	add("two Cookie fields, another value in the second", false, joined(rest, "; ", mine), theirs)
	// To some servers a cookie or its value ends here, too.
	add("the cookie "+name+" with a blank and another cookie after it", false, joined(rest, "; ", mine+" weir-verify=1"))
	add("the cookie "+name+" with an & after its value", false, joined(rest, "; ", mine+"&weir-verify=1"))
	add("the cookie "+name+" twice, after a comma, another value first", false, joined(rest, "; ", theirs+", "+mine))
	add("the cookie "+name+" after a comma, another value after a semicolon", false, joined(rest, "; ", "weir-verify=1, "+mine+"; "+theirs))
	if loud := strings.ToUpper(name); loud != name {
		add("the cookie "+loud+" with another value as well", false, joined(rest, "; ", loud+"="+other+"; "+mine))
	}
	return all
}

func (c *valueCheck) parameterSpellings(source, name, value, other string) (all []valueSpelling) {
	add := func(same bool, pairs string) {
		r := c.lacking(source)
		r.query = joined(r.query, "&", pairs)
		all = append(all, valueSpelling{"?" + pairs, r, same})
	}
	mine, theirs := name+"="+value, name+"="+other
	add(true, name+"=%"+hexByte(value[0])+value[1:])
	add(true, "%"+hexByte(name[0])+mine[1:])
	add(true, "weir-verify=1&"+mine)
	add(false, mine+"&"+mine)
	add(false, theirs+"&"+mine)
	add(false, mine+"&"+theirs)
	add(false, mine+";"+theirs)
	add(false, mine+"&"+name+"[]="+other)
	if loud := strings.ToUpper(name); loud != name {
		add(false, loud+"="+other+"&"+mine)
	}
	return all
}

func (c *valueCheck) hostSpellings(value, other string) (all []valueSpelling) {
	hosts := []string{strings.ToUpper(value), value + ":8080"}
	if !strings.HasSuffix(value, "]") { // an address has no dot after it
		hosts = append(hosts, value+".")
	}
	for _, host := range hosts {
		r := c.plain()
		r.host = host
		all = append(all, valueSpelling{"Host: " + host, r, true})
	}
	return append(all, valueSpelling{"X-Forwarded-Host with another value", c.plain().with("X-Forwarded-Host", other), true},
		valueSpelling{"Forwarded with another host", c.plain().with("Forwarded", "host="+other), true})
}

func (c *valueCheck) segmentSpellings(source, value string) (all []valueSpelling) {
	for _, spelled := range []string{strings.ToUpper(value), "%" + hexByte(value[0]) + value[1:], value + ";v=1", "/" + value, "./" + value, "x/../" + value} {
		r := c.plain()
		r.path = withSegment(r.path, value, spelled)
		all = append(all, valueSpelling{r.path, r, true})
	}
	return all
}
