package verify

import (
	"context"
	"net/http"
	"slices"
	"strings"
)

// checkShared sends main's request on new connections, to the limiter's other endpoints, with the
// credential in another spelling, and with other values in the fields that the limiter does not
// count by. All of them must be refused while main's budget is spent.
func checkShared(clause *check) hooks {
	c := &sharedCheck{clause}
	return hooks{
		needsRefusals: true,
		drained:       c.tryOneConnection,
		escaped: func(a *answer, with string) {
			c.broken(a, "answered %d with %s, while it is refused without", a.status, with)
		},
		tries: func(ctx context.Context, t *tally) error {
			tried, ok, err := c.tryEndpoints(ctx, t)
			if err != nil || !ok {
				return err
			}
			for _, try := range []func(context.Context, *tally) (bool, error){c.tryCredentialSpellings, c.trySameCaller, c.tryOtherValues} {
				if ok, err := try(ctx, t); err != nil || !ok {
					return err
				}
			}
			return c.tryIndifferent(ctx, t, "refused on new connections: "+strings.Join(tried, ", "))
		},
	}
}

type sharedCheck struct{ *check }

// tryEndpoints sends a request to each of the limiter's first four endpoints on a new connection.
// It is not ok after a verdict.
func (c *sharedCheck) tryEndpoints(ctx context.Context, t *tally) (tried []string, ok bool, err error) {
	for _, e := range c.part.endpoints[:min(4, len(c.part.endpoints))] {
		r := c.who.main.request(c.run.options, e)
		r.fresh = true
		a, err := c.sendCalm(ctx, r)
		if err != nil {
			return nil, false, err
		}
		if !e.isElsewhere(a) {
			c.judge(a)
		}
		if c.seen.isTrouble(a) || e.isElsewhere(a) {
			continue
		}
		if a.admitted() {
			switch got, err := c.confirmEscape(ctx, t, r); {
			case err != nil:
				return nil, false, err
			case got == byChance:
				c.leakByChance(t, a)
				continue
			case got == windowEnded:
				c.untested(NeedsMore.because("the window ended before it could be tested"))
			default:
				c.broken(a, "%s %s was answered %d on a new connection, while %s is refused", r.method, r.path, a.status, c.part.endpoints[0])
			}
			return nil, false, nil
		}
		c.judgeCounted(a)
		c.remember(a)
		tried = append(tried, e.String())
	}
	return tried, true, nil
}

// tryCredentialSpellings writes main's credential in other ways. A limiter that requires none may
// count a spelling that it does not accept by the address, and let it in.
func (c *sharedCheck) tryCredentialSpellings(ctx context.Context, t *tally) (ok bool, err error) {
	if c.part.limiter.Requires == "" {
		return true, nil
	}
	for _, r := range c.credentialSpellings() {
		a, got, err := c.attempt(ctx, t, r)
		if err != nil {
			return false, err
		}
		// And not 401: a server may accept one spelling alone.
		if got == escaped && c.seen.isLikeServed(a) {
			c.broken(a, "answered %d with another spelling of the same credential, while it is refused", a.status)
			return false, nil
		}
	}
	return true, nil
}

// credentialSpellings returns main's request with its credential in other spellings, in the other
// places where the deployment reads it, and with credentials that are the same caller's.
func (c *sharedCheck) credentialSpellings() (all []request) {
	if c.who.credential == "" {
		return nil
	}
	credential, in := c.who.main.authorization, c.who.main.place
	with := func(authorization string) { all = append(all, c.plain().with("Authorization", authorization)) }
	switch in.Scheme() {
	case "Bearer":
		with("bearer " + credential)
		with("BEARER " + credential)
		if other := respelled(credential); other != credential {
			c.run.secrets.add(other)
			with("Bearer " + other)
		}
	case "Basic":
		with("basic " + strings.TrimPrefix(basic(credential, ""), "Basic "))
		other := basic(credential, freshAgent())
		c.run.secrets.addField("Authorization", other)
		with(other)
	}
	if c.who.credential == sourceToken {
		for _, other := range c.run.options.TokenPlaces {
			if other != in {
				main := c.who.main
				main.place = other
				all = append(all, c.requestOf(main), presented(c.plain(), other, credential))
			}
		}
	}
	return all
}

// trySameCaller sends other credentials that the limiter does not distinguish from main's: those
// that have the same claim.
func (c *sharedCheck) trySameCaller(ctx context.Context, t *tally) (ok bool, err error) {
	for i, credential := range c.who.credentials() {
		if !c.part.isDrained(t.limit) || credential == c.who.main.authorization || !c.who.isSameCaller(credential) || c.who.credential == "" {
			continue
		}
		same := c.who.main
		same.authorization = credential
		a, got, err := c.attempt(ctx, t, c.requestOf(same))
		if err != nil {
			return false, err
		}
		if got == escaped && c.seen.isOtherBudget(t, a) {
			c.broken(a, "answered %d with %s %d, whose claims that it counts by are the same as those of the one that is refused", a.status, kindInWords[c.who.credential], i+1)
			return false, nil
		}
	}
	return true, nil
}

// indifferentClaims returns fields that the limiter does not count by, with made-up values.
func (c *sharedCheck) indifferentClaims() []claim {
	all := []claim{{"Cookie", []string{joined(c.plain().fields["Cookie"], "; ", "session=weir-verify")}}, {"Referer", []string{"https://another.example.com/"}},
		{"Accept", []string{"application/json, */*;q=0.1"}}, {"Origin", []string{"https://another.example.com"}}}
	// Otherwise another agent is another caller, and the User-Agent may be one (D13).
	if !c.part.countsByAgent() {
		all = append(all, claim{"X-Agent-Id", []string{freshAgent()}}, claim{"?agent_id", []string{freshAgent()}},
			claim{"User-Agent", []string{freshAgent()}})
	}
	// Otherwise a credential that does not verify is another caller (D16).
	if credentialOf(c.part.limiter) == "" {
		all = append(all, claim{"Authorization", []string{"Bearer " + freshAgent()}}, claim{"X-Api-Key", []string{freshAgent()}})
	}
	return slices.DeleteFunc(all, c.isCountedBy)
}

// isCountedBy reports whether the limiter counts by a claim's field, parameter or cookie.
func (c *sharedCheck) isCountedBy(x claim) bool {
	l := c.part.limiter
	if parameter, ok := strings.CutPrefix(x.name, "?"); ok {
		return slices.Contains(namesIn(l, sourceQuery), parameter)
	}
	return slices.Contains(namesIn(l, sourceHeader), http.CanonicalHeaderKey(x.name)) ||
		x.name == "Cookie" && slices.Contains(namesIn(l, sourceCookie), "session")
}

// indifferentSources returns the sources that only other windows of the limiter count by: this one
// is the same with another value.
func (c *sharedCheck) indifferentSources() []string {
	by := countedBy(c.part.window.Key, c.who.has)
	return slices.DeleteFunc(sourcesOf(c.part.limiter), func(source string) bool {
		return !c.who.canVary(source) || slices.Contains(by, source)
	})
}

// tryOtherValues changes what only the limiter's other windows count by.
func (c *sharedCheck) tryOtherValues(ctx context.Context, t *tally) (ok bool, err error) {
	if !c.part.isDrained(t.limit) {
		return true, nil
	}
	for _, source := range c.indifferentSources() {
		a, got, err := c.attempt(ctx, t, c.requestOf(c.who.main.another(source)))
		if err != nil {
			return false, err
		}
		if got == escaped && c.seen.isOtherBudget(t, a) {
			c.broken(a, "answered %d with another value of %s, while it is refused without: the window of %d does not count by that", a.status, source, t.limit)
			return false, nil
		}
	}
	return true, nil
}

// tryIndifferent changes what main is not counted by. soFar is what was seen of the clause before.
func (c *sharedCheck) tryIndifferent(ctx context.Context, t *tally, soFar string) error {
	all, ended := c.indifferentClaims(), false
	for _, x := range all {
		if c.run.options.Header.Get(x.name) != "" {
			continue // the API may require the caller's value
		}
		a, got, err := c.attempt(ctx, t, x.on(c.plain()))
		if err != nil {
			return err
		}
		if got == another { // not confirmed yet, since its path differs
			if got, err = c.confirmSpent(ctx, t); err != nil {
				return err
			}
		}
		if got == escaped && c.seen.isOtherBudget(t, a) {
			c.broken(a, "answered %d with %s, while it is refused without: the policy does not count by that", a.status, x)
			return nil
		}
		ended = ended || got == windowEnded
	}
	if ended {
		c.kept("%s", soFar)
		return nil
	}
	c.kept("%s; and with other values in %d fields that it does not count by", soFar, len(all))
	return nil
}

// tryOneConnection uses one connection alone, if more requests were admitted over several
// connections than the limit allows: each connection may have a budget of its own.
func (c *sharedCheck) tryOneConnection(ctx context.Context, s *spending) error {
	if !s.judged() || s.tally.refused > 0 {
		return nil
	}
	c.spareUsed = true
	if c.run.options.Workers < 2 {
		return nil
	}
	select {
	case <-c.run.wire.lone:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { c.run.wire.lone <- struct{}{} }()
	one := c.run.wire.hold(ctx)
	if one == nil {
		return context.Cause(ctx)
	}
	defer c.run.wire.free(one)
	for range c.part.again {
		r := c.plain()
		r.on = one
		a, err := c.send(ctx, r)
		if err != nil {
			return err
		}
		if a.admitted() {
			continue
		}
		c.judge(a)
		other, err := c.ask(ctx)
		if err != nil {
			return err
		}
		if again, err := c.send(ctx, r); err != nil || !other.admitted() || again.admitted() || other.reset != s.tally.reset {
			return err
		}
		c.broken(other, "admitted on one connection while refused on another, before and after")
		return nil
	}
	return nil
}
