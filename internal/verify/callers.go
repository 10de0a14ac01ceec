package verify

import (
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
	by := countedBy(c.part.window.Key, c.has)
	agent := freshAgent()
	if o.Real && o.Agent != "" && c.part.endpoints[0].path == initPath {
		agent = o.Agent
	}
	if a := c.tried(); a != nil {
		agent = a.request.fields["X-Agent-Id"]
	}
	c.main.agent, c.stranger = agent, freshAgent()
	for _, field := range o.madeUp(c.part.limiter) {
		c.main = c.main.another(sourceHeader + ":" + field)
	}
	switch kind := credentialOf(c.part.limiter); {
	case kind == "" && len(c.run.sessions) > 0:
		// Some endpoints that are counted by address require one.
		c.main.authorization = c.run.sessions[0]
	case kind != "" && !c.has(kind):
		c.unproved = c.noCredential(kind)
	case kind != "":
		c.credential = kind
	}
	c.other = c.main
	if c.credential != "" {
		c.main.authorization = c.credentials()[0]
		c.other.authorization = c.main.authorization
	}
	switch {
	case c.credential != "" && slices.Contains(by, c.credential):
		c.chooseByCredential()
	case slices.ContainsFunc(by, isChosen):
		c.apart = by[slices.IndexFunc(by, isChosen)]
		c.other = c.main.another(c.apart)
		c.alone = slices.ContainsFunc(by, c.isFresh)
	case !c.unproved.isZero():
		c.noOther = c.unproved
	case slices.ContainsFunc(by, func(source string) bool { return kindOf(source) == weir.Common }):
		c.noOther = inherently("all callers share its budget")
	default:
		c.noOther = inherently("it counts by address, and the verifier has one address")
	}
}

func isChosen(source string) bool { return kindOf(source) == weir.Chosen }

// isFresh reports whether main's value of a source was made up for it, so that no one else has it.
func (c *callers) isFresh(source string) bool {
	if source == sourceAgent {
		return c.main.agent != c.run.options.Agent
	}
	_, field := weir.SplitSource(source)
	return c.main.fields[field] != ""
}

func (c *callers) chooseByCredential() {
	all := c.credentials()
	c.apart = c.credential
	c.other.authorization = ""
	if len(all) > 1 {
		c.other.authorization = all[1]
	} else {
		c.noOther = NeedsInput.because("one %s was given: a second one is needed", c.credential)
	}
	c.alone = c.credential == sourceSession && c.run.own
}

// tried returns the answer to the request that tried main's credential, since it began main's
// window. It is nil if there is none, or if the window is counted by the agent or by a field that
// has a made-up value, since main's is fresh.
func (c *callers) tried() *answer {
	if c.part.countsByAgent() || len(c.run.options.madeUp(c.part.limiter)) > 0 {
		return nil
	}
	return c.run.tried[c.part]
}

// credentials returns the credentials of the kind that the limiter counts by.
func (c *callers) credentials() []string {
	if c.credential == sourceSession {
		return c.run.sessions
	}
	return c.run.options.Tokens
}

// has reports whether main can be counted by a key source.
func (c *callers) has(source string) bool {
	switch source {
	case sourceSession:
		return len(c.run.sessions) > 0
	case sourceToken:
		return len(c.run.options.Tokens) > 0
	}
	return true
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
	if c.apart == "" {
		return false
	}
	lengths := c.part.lengthsOf(limit)
	for i := range c.part.limiter.Windows {
		w := &c.part.limiter.Windows[i]
		mayBe := slices.Contains(lengths, w.Per) || !slices.Contains(lengths, c.part.window.Per)
		if mayBe && !slices.Contains(countedBy(w.Key, c.has), c.apart) {
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
