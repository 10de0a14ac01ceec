package verify

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weirlimit/weir"
)

// Callers are who sends a limiter's requests: main, whose budget is used up, and other, who has a
// budget of its own.
type callers struct {
	run  *runner
	part *part

	main, other caller // other is zero without such a caller
	// The key source that main is counted by if it is a credential: session or token.
	credential string
	unproved   gap    // why main has no credential although the limiter counts by one
	noOther    gap    // why there is no other; zero: there is
	apart      string // the key source that distinguishes main from other
	stranger   string // the agent of requests whose credentials do not verify
	noHost     gap    // why hosts are not made up; zero: they are, if the limiter counts by host
	alone      bool   // only this verifier can spend main's budget
}

func newCallers(r *runner, w *part) callers {
	c := callers{run: r, part: w}
	c.choose()
	return c
}

// choose decides who is counted.
func (c *callers) choose() {
	o := c.run.options
	kind := credentialOf(c.part.limiter)
	c.main = caller{agent: freshAgent(), segments: c.part.segments, under: c.part.endpoints[0].under}
	switch {
	case kind == "" && len(c.run.sessions) > 0:
		// Some endpoints that are counted by address require one.
		c.main.authorization = c.run.sessions[0]
	case kind != "" && len(c.given(kind)) == 0:
		c.unproved = c.noCredential(kind)
	case kind != "":
		c.credential = kind
		c.main.authorization, c.main.place = c.given(kind)[0], o.placeOf(kind)
	}
	if o.Real && o.Agent != "" && c.part.endpoints[0].path == initPath {
		c.main.agent = o.Agent
	}
	if all := c.tried(); len(all) > 0 {
		c.main.agent = all[0].request.fields["X-Agent-Id"]
	}
	c.stranger = freshAgent()
	if e := c.part.endpoints[0]; e.under == "" {
		c.noHost = inherently("its route names one host, " + cmp.Or(e.host, o.URL.Hostname()))
	}
	for _, source := range o.madeUp(c.part.limiter) {
		if source == sourceHost && !c.noHost.isZero() {
			continue
		}
		if c.part.segments[source] == "" { // otherwise the endpoints have it
			c.main = c.main.another(source)
		}
	}
	c.chooseOther(countedBy(c.part.window.Key, c.has))
}

// chooseOther decides who has a budget of its own. by is what main is counted by.
func (c *callers) chooseOther(by []string) {
	chosen := slices.IndexFunc(by, c.canVary)
	proven := slices.IndexFunc(by, c.isProven)
	c.other = c.main
	c.alone = slices.ContainsFunc(by, c.isFresh) || c.run.own && slices.Contains(by, sourceSession)
	if proven >= 0 {
		c.apart = by[proven]
		if c.other.authorization = c.anotherCredential(c.apart); c.other.authorization != "" {
			return
		}
		c.noOther = c.onlyCredential(c.apart)
	}
	switch {
	case chosen >= 0:
		c.noOther, c.apart = gap{}, by[chosen]
		c.other = c.main.another(c.apart)
	case proven >= 0:
	case !c.noHost.isZero() && slices.Contains(by, sourceHost):
		c.noOther = c.noHost
	case !c.unproved.isZero():
		c.noOther = c.unproved
	case slices.ContainsFunc(by, func(source string) bool { return kindOf(source) == weir.Common }):
		c.noOther = inherently("all callers share its budget")
	default:
		c.noOther = inherently("it counts by address, and the verifier has one address")
	}
}

// keepHost lets main send the URL's own host, which other callers send, too.
func (c *callers) keepHost(why gap) {
	c.noHost = why
	c.main.chosen = maps.Clone(c.main.chosen)
	delete(c.main.chosen, sourceHost)
	c.chooseOther(countedBy(c.part.window.Key, c.has))
}

// canVary reports whether another value of a source can be made up.
func (c *callers) canVary(source string) bool {
	return isChosen(source) && (source != sourceHost || c.noHost.isZero())
}

func isChosen(source string) bool { return kindOf(source) == weir.Chosen }

// isProven reports whether a source is main's credential, or is read from it.
func (c *callers) isProven(source string) bool {
	return c.credential != "" && weir.SourceOf(source).Credential() == c.credential
}

// isFresh reports whether main's value of a source was made up for it, so that no one else has it.
func (c *callers) isFresh(source string) bool {
	if source == sourceAgent {
		return c.main.agent != c.run.options.Agent
	}
	return c.main.chosen[source] != "" || c.part.segments[source] != ""
}

// valueOf returns main's value of a source that the verifier writes into requests, or "".
func (c *callers) valueOf(source string) string {
	if value := cmp.Or(c.main.chosen[source], c.part.segments[source]); value != "" {
		return value
	}
	if e := c.part.endpoints[0]; source == sourceHost && e.sited {
		return cmp.Or(e.host, c.run.options.URL.Hostname())
	}
	return c.run.options.givenValue(source)
}

// anotherCredential returns one that has another value of a source than main's, or "".
func (c *callers) anotherCredential(source string) string {
	for _, credential := range c.credentials() {
		if valueIn(credential, source) != valueIn(c.main.authorization, source) {
			return credential
		}
	}
	return ""
}

func (c *callers) onlyCredential(source string) gap {
	if n := len(c.credentials()); source != c.credential && n > 1 {
		return NeedsInput.because("all %d of the %ss have the same %s: one with another value is needed", n, kindInWords[c.credential], source)
	}
	return NeedsInput.because("one %s was given: a second one is needed", c.credential)
}

// tried returns the answers to the requests that tried main's credential, and others with the value
// that main is counted by: they were charged to main's window. It returns none if the window is
// counted by the agent or by another value that is made up, since main's is fresh.
func (c *callers) tried() (all []*answer) {
	if c.part.countsByAgent() || len(c.run.options.madeUp(c.part.limiter)) > 0 || c.credential == "" {
		return nil
	}
	for _, x := range c.run.tried[c.part] {
		if x.credential == c.main.authorization || c.isSameCaller(x.credential) {
			all = append(all, x.answer)
		}
	}
	return all
}

// isSameCaller reports whether main's window counts a request with another credential like main's:
// by a claim that both have.
func (c *callers) isSameCaller(credential string) bool {
	proven := slices.DeleteFunc(countedBy(c.part.window.Key, c.has), func(source string) bool { return !c.isProven(source) })
	differs := func(source string) bool { return !sameValue(credential, c.main.authorization, source) }
	return len(proven) > 0 && !slices.ContainsFunc(proven, differs)
}

// credentials returns the credentials of the kind that the limiter counts by.
func (c *callers) credentials() []string { return c.given(c.credential) }

// given returns the credentials of a kind that the verifier has.
func (c *callers) given(kind string) []string {
	if kind == sourceSession {
		return c.run.sessions
	}
	return c.run.options.Tokens
}

// has reports whether main can be counted by a key source.
func (c *callers) has(source string) bool {
	switch kind := weir.SourceOf(source).Credential(); {
	case kind == "":
		return true
	case kind != c.credential:
		return false
	default:
		return valueIn(c.main.authorization, source) != ""
	}
}

// unproven returns a caller with another credential, or none, that has nothing else of main's but
// what the endpoint's path has.
func (c *callers) unproven(credential string) caller {
	return caller{authorization: credential, place: c.main.place, agent: c.stranger, segments: c.part.segments, under: c.main.under}
}

func (c *callers) noCredential(kind string) gap {
	if kind == sourceSession {
		return NeedsInput.because("%s; the address's budget was tested instead", c.run.why)
	}
	return NeedsInput.because("no API token was given; the address's budget was tested instead")
}

// reject records that the deployment does not accept main's credential: main is counted by its
// address.
func (c *callers) reject() {
	c.unproved = NeedsInput.because("the %s is answered 401; the address's budget was tested instead", c.credential)
	c.noOther, c.credential, c.apart, c.alone = c.unproved, "", "", false
}

// noneToAlter returns why there is no credential that could be altered.
func (c *callers) noneToAlter() gap {
	if !c.unproved.isZero() {
		return c.unproved
	}
	return inherently("it counts by no credential")
}

// isApart reports whether main and other share no window of that limit.
func (c *callers) isApart(limit int64) bool {
	return c.apart != "" && c.isCounted(limit, func(source string) bool { return source == c.apart })
}

// isCountedByCredential reports whether each window of that limit counts main by its credential.
func (c *callers) isCountedByCredential(limit int64) bool { return c.isCounted(limit, c.isProven) }

// isCounted reports whether each window of that limit counts main by some source.
func (c *callers) isCounted(limit int64, by func(source string) bool) bool {
	lengths := c.part.lengthsOf(limit)
	rows := c.part.limiter.Windows
	if len(rows) == 0 {
		rows = c.part.limiter.Rows()
	}
	for i := range rows {
		w := &rows[i]
		mayBe := slices.Contains(lengths, w.Per) || !slices.Contains(lengths, c.part.window.Per)
		if mayBe && !slices.ContainsFunc(countedBy(w.Key, c.has), by) {
			return false
		}
	}
	return true
}

// isAlone reports whether only this verifier can spend main's window of that limit.
func (c *callers) isAlone(limit int64) bool {
	if !c.alone {
		return false
	}
	for _, per := range c.part.lengthsOf(limit) {
		if per != c.part.window.Per {
			return false
		}
	}
	return true
}
