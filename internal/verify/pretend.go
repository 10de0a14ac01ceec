package verify

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
)

// What a client may write into its requests at will, and nobody's budget should hang on. Each is sent alone, while the budget is spent.

// A claim is a field with a made-up value, or several lines of it; or, where its name begins with "?", a parameter of the query.
type claim struct {
	name   string
	values []string
}

func (c claim) String() string {
	if strings.HasPrefix(c.name, "?") {
		return c.name + "=" + c.values[0]
	}
	return c.name + ": " + strings.Join(c.values, " | ")
}

// on returns the request with the claim in it.
func (c claim) on(r request) request {
	switch {
	case strings.HasPrefix(c.name, "?"):
		r.path += c.String()
		return r
	case len(c.values) == 1:
		return r.with(c.name, c.values[0])
	}
	r.lines = map[string][]string{c.name: c.values}
	return r
}

// forwardedFields are what a client may claim about where it comes from.
var forwardedFields = []claim{
	{"X-Forwarded-For", []string{"203.0.113.7"}}, {"X-Forwarded-For", []string{"203.0.113.8, 198.51.100.9"}}, {"X-Forwarded-For", []string{"127.0.0.1"}},
	{"X-Forwarded-For", []string{"203.0.113.19", "198.51.100.20"}},
	{"Forwarded", []string{"for=203.0.113.10"}}, {"X-Real-IP", []string{"203.0.113.11"}}, {"True-Client-IP", []string{"203.0.113.12"}},
	{"CF-Connecting-IP", []string{"203.0.113.13"}}, {"X-Client-IP", []string{"203.0.113.14"}}, {"X-Cluster-Client-IP", []string{"203.0.113.15"}},
	{"Fastly-Client-IP", []string{"203.0.113.16"}}, {"X-Originating-IP", []string{"203.0.113.17"}}, {"Via", []string{"1.1 203.0.113.18"}},
	{"Fly-Client-IP", []string{"203.0.113.21"}}, {"X-Envoy-External-Address", []string{"203.0.113.22"}}, {"X-Azure-ClientIP", []string{"203.0.113.23"}},
	{"X-Original-Forwarded-For", []string{"203.0.113.24"}}, {"X-Remote-IP", []string{"203.0.113.25"}}, {"X-Remote-Addr", []string{"203.0.113.26"}},
	{"X-Forwarded-Host", []string{"verify.example.com"}},
}

func (d *driver) tryForwarded(ctx context.Context, t *tally) error {
	late := false
	for _, f := range forwardedFields {
		a, got, err := d.attemptMain(ctx, t, f.on(d.plain()))
		if err != nil {
			return err
		}
		switch got {
		case escaped:
			d.broken("forwarded", a, "answered %d with %s, while it is refused without (unless the verifier's own address is that of a trusted proxy)", a.status, f)
			return nil
		case tooLate:
			late = true
		}
	}
	if late {
		d.untested("forwarded", NeedsMore.because("the window ended before all of it could be tested"))
		return nil
	}
	d.kept("forwarded", "refused with %d made-up fields", len(forwardedFields))
	return nil
}

// indifferent are fields that no key of the limiter's is made of, with made-up values.
func (d *driver) indifferent() []claim {
	all := []claim{{"Cookie", []string{"session=weir-verify"}}, {"Referer", []string{"https://another.example.com/"}},
		{"Accept", []string{"application/json, */*;q=0.1"}}, {"Origin", []string{"https://another.example.com"}}}
	byAgent := slices.ContainsFunc(d.part.limiter.Windows, func(w weir.Window) bool { return w.Key.Uses(sourceAgent) })
	if !byAgent { // where it does, another agent is another caller, and the User-Agent may be one (D13)
		all = append(all, claim{"X-Agent-Id", []string{freshAgent()}}, claim{"?agent_id", []string{freshAgent()}},
			claim{"User-Agent", []string{freshAgent()}})
	}
	if credentialOf(d.part.limiter) == "" { // where it counts by one, one that does not verify is another caller (D16)
		all = append(all, claim{"Authorization", []string{"Bearer " + freshAgent()}}, claim{"X-Api-Key", []string{freshAgent()}})
	}
	return all
}

// tryIndifferent changes what a caller is not counted by. so is what has been seen of the clause before.
func (d *driver) tryIndifferent(ctx context.Context, t *tally, so string) error {
	all, late := d.indifferent(), false
	for _, c := range all {
		if d.run.options.Header.Get(c.name) != "" {
			continue // the API may want what its caller says there
		}
		a, got, err := d.attempt(ctx, t, c.on(d.plain()))
		if err != nil {
			return err
		}
		if got == another { // as its path is another one, it was not made sure of
			if got, err = d.isSpent(ctx, t); err != nil {
				return err
			}
		}
		if got == escaped && d.isOtherBudget(t, a) {
			d.broken("shared", a, "answered %d with %s, while it is refused without: the policy counts by nothing of the kind", a.status, c)
			return nil
		}
		late = late || got == tooLate
	}
	if late {
		d.kept("shared", "%s", so)
		return nil
	}
	d.kept("shared", "%s; and with other values in %d fields that it does not count by", so, len(all))
	return nil
}

// isOtherBudget reports whether an answer is of the endpoint's limiter, and charged to another budget than the one that is spent.
func (d *driver) isOtherBudget(t *tally, a *answer) bool {
	return d.answersLikeEndpoint(a) || a.complete() && a.limit == t.limit && a.remaining > 0
}

// A disguise is a request for the endpoint, or one that some server may take for it, by a field that overrides method or path.
type disguise struct {
	says    string
	request request
	control request // what it is where the field means nothing, or all that it says: answered alike, the disguise shows nothing
}

// disguises are those that change nothing that the endpoint's own requests do not.
func (d *driver) disguises() []disguise {
	plain, nothing := d.plain(), d.plain()
	nothing.path = plain.path[:strings.LastIndexByte(plain.path, '/')] + "/weir-verify-nothing"
	if d.covers(nothing) {
		nothing.path = "/weir-verify-nothing"
	}
	method := func(name string) request {
		r := d.plain()
		r.method = name
		return r
	}
	other, before := "GET", map[string]string{"POST": "GET", "PUT": "POST", "PATCH": "POST"}[plain.method]
	if plain.method == "GET" {
		other = "HEAD"
	}
	base := strings.TrimSuffix(d.run.options.URL.EscapedPath(), "/")
	const override = "X-HTTP-Method-Override"
	all := []disguise{{override + ": " + other, plain.with(override, other), method(other)}}
	if before != "" {
		all = append(all, disguise{before + " with " + override + ": " + plain.method, method(before).with(override, plain.method), method(before)})
	}
	for _, name := range []string{"X-Original-URL", "X-Rewrite-URL"} {
		all = append(all, disguise{name + ": " + base + nothing.path, plain.with(name, base+nothing.path), nothing},
			disguise{nothing.path + " with " + name + ": " + base + plain.path, nothing.with(name, base+plain.path), nothing})
	}
	return all
}

// tryDisguises asks for the endpoint under another method or path. It reports whether one got through, and whether the window ended.
func (d *driver) tryDisguises(ctx context.Context, t *tally) (through, late bool, err error) {
	if through, late, err = d.tryHead(ctx, t); through || err != nil {
		return through, late, err
	}
	for _, x := range d.disguises() {
		x.request.beside, x.control.beside = !d.covers(x.request), true
		a, got, err := d.attempt(ctx, t, x.request)
		if err != nil {
			return false, late, err
		}
		late = late || got == tooLate
		if got != escaped || !d.answersLikeEndpoint(a) {
			continue
		}
		c, err := d.send(ctx, x.control)
		if err != nil {
			return false, late, err
		}
		if c.status >= 500 || c.admitted() && d.answersLikeEndpoint(c) || !c.admitted() && !d.covers(x.control) {
			continue
		}
		d.broken("spelling", a, "%s was answered %d as the endpoint answers, while %s is refused", x.says, a.status, d.part.endpoints[0])
		return true, late, nil
	}
	return false, late, nil
}

// covers reports whether the policy has this limiter count a request.
func (d *driver) covers(r request) bool {
	covered := d.run.plan.routes.Match(r.method, r.path).Limiter()
	return covered != nil && covered.Name == d.name
}

// tryHead asks for what GET is refused by HEAD, which a route of GET covers. Its answer has no body, so that little of it is judged.
func (d *driver) tryHead(ctx context.Context, t *tally) (through, late bool, err error) {
	r := d.plain()
	if r.method != http.MethodGet {
		return false, false, nil
	}
	r.method = http.MethodHead
	if !d.covers(r) {
		return false, false, nil
	}
	a, got, err := d.attempt(ctx, t, r)
	if err != nil || got != escaped || d.served == nil || a.status != d.served.status || a.status == http.StatusUnauthorized {
		return false, got == tooLate, err
	}
	d.broken("spelling", a, "HEAD %s was answered %d, while GET is refused", r.path, a.status)
	return true, false, nil
}
