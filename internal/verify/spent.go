package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/weirlimit/weir/headers"
)

// spent tries to get more than the budget while nothing of it is left.
func (d *driver) spent(ctx context.Context) error {
	t := d.now()
	if t == nil || t.refused == 0 || t.firstRefused.reset == absent {
		for _, clause := range []string{"fields-refused", "refused-type", "refused-remaining", "refused-body", "language", "retry-after", "refused-free",
			"refused-status", "shared", "separate", "forwarded", "spelling", "restored"} {
			d.untested(clause, d.whyNotSpent())
		}
		return errDone
	}
	d.does("trying to get more than the limit")
	for _, step := range []func(context.Context, *tally) error{d.hammer, d.tryShared, d.tryForwarded, d.trySpellings, d.tryLanguages, d.tryOther, d.tryUnverified} {
		if err := step(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// A try is what became of one attempt to get more.
type try uint8

const (
	refused  try = iota
	escaped      // admitted, while the plain request is still refused
	another      // answered otherwise than the endpoint answers: another endpoint, an error
	tooLate      // the window ended
	byChance     // admitted once, and refused when it was sent again: not what the request says is the cause
)

// attempt sends a request that should not get through, and makes sure.
func (d *driver) attempt(ctx context.Context, t *tally, r request) (*answer, try, error) {
	a, err := d.sendCalm(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	switch {
	case !a.admitted():
		return a, refused, nil
	case d.isTrouble(a), r.path != d.part.endpoints[0].path && !d.answersLikeEndpoint(a):
		return a, another, nil
	}
	got, err := d.confirmEscape(ctx, t, r)
	return a, got, err
}

// answersLikeEndpoint reports whether an answer is what the endpoint says when it admits. With bodies that validation refuses, that is an
// error like others, so the error must be the same.
func (d *driver) answersLikeEndpoint(a *answer) bool {
	if a.status < 300 {
		return d.served == nil || d.served.status < 300 || a.status == d.served.status
	}
	if a.status == http.StatusUnauthorized {
		return false // before anything else is looked at, so that it tells nothing of what is behind
	}
	return d.served != nil && a.status == d.served.status && sameError(a.body, d.served.body)
}

func sameError(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	type shape struct {
		Error struct{ Code, Message string }
	}
	var one, two shape
	if json.Unmarshal(a, &one) != nil || json.Unmarshal(b, &two) != nil {
		return false
	}
	return one == two && one.Error.Message != ""
}

// hammer asks again and again.
func (d *driver) hammer(ctx context.Context, t *tally) error {
	a, err := d.askWith(ctx, d.plain().with("Origin", verifyOrigin))
	if err != nil {
		return err
	}
	if !a.admitted() {
		d.checkExposed(a)
	}
	for range 9 {
		a, err := d.ask(ctx)
		if err != nil {
			return err
		}
		if a.admitted() && a.reset == t.reset {
			if _, err := d.isSpent(ctx, t); err != nil {
				return err
			}
			d.judgeLeak(t, a, d.last)
		}
	}
	return nil
}

// attemptMain is attempt for a request that main's own window counts.
func (d *driver) attemptMain(ctx context.Context, t *tally, r request) (*answer, try, error) {
	a, got, err := d.attempt(ctx, t, r)
	if err == nil {
		d.check(a)
	}
	if err == nil && got == byChance {
		d.noteChance(t, a)
	}
	if err == nil && (got == refused || got == escaped && a.reset == t.reset) { // with another Reset it is of another budget
		d.checkStanding(a)
		d.count(a)
	}
	return a, got, err
}

// tryShared uses new connections, the limiter's other endpoints, and other ways to write the same credential.
func (d *driver) tryShared(ctx context.Context, t *tally) error {
	var tried []string
	for i, e := range d.part.endpoints {
		if i == 4 {
			break
		}
		r := d.main.request(d.run.options, e)
		r.fresh = true
		a, err := d.sendCalm(ctx, r)
		if err != nil {
			return err
		}
		d.check(a)
		if d.isTrouble(a) {
			continue
		}
		if a.admitted() {
			if sure, err := d.tryAgainShared(ctx, t, r, a); sure || err != nil {
				return err
			}
			continue
		}
		d.checkStanding(a)
		d.count(a)
		tried = append(tried, e.String())
	}
	for _, authorization := range d.respellings() {
		a, got, err := d.attempt(ctx, t, d.plain().with("Authorization", authorization))
		if err != nil {
			return err
		}
		if got == escaped && d.answersLikeEndpoint(a) { // and not 401: there may be one way to write it
			d.broken("shared", a, "answered %d with the same credential, written otherwise, while it is refused", a.status)
			return nil
		}
	}
	return d.tryIndifferent(ctx, t, "refused on new connections: "+strings.Join(tried, ", "))
}

// tryAgainShared makes sure that a request was admitted while the budget is spent, and reports whether that ends the test.
func (d *driver) tryAgainShared(ctx context.Context, t *tally, r request, a *answer) (bool, error) {
	switch got, err := d.confirmEscape(ctx, t, r); {
	case err != nil:
		return true, err
	case got == byChance:
		d.noteChance(t, a)
		return false, nil
	case got == tooLate:
		d.untested("shared", NeedsMore.because("the window ended before it could be tested"))
		return true, nil
	}
	d.broken("shared", a, "%s %s was answered %d on a new connection, while %s is refused", a.request.method, a.request.path, a.status, d.part.endpoints[0])
	return true, nil
}

// respellings are other ways to write main's credential.
func (d *driver) respellings() []string {
	if d.credential == "" {
		return nil
	}
	all := []string{"bearer " + d.main.authorization, "BEARER " + d.main.authorization}
	if other := respelled(d.main.authorization); other != d.main.authorization {
		d.run.secrets.add(other)
		all = append(all, "Bearer "+other)
	}
	return all
}

// A spelling is a way to write a path that some server or other takes for the same.
type spelling struct {
	path string
	same bool // it is the same path by RFC 3986, section 6.2.2, to whoever reads it
}

func spellings(path string) []spelling {
	slash := strings.LastIndexByte(path, '/')
	dir, name := path[:slash], path[slash+1:]
	all := []spelling{{path + "/", false}, {path + "/.", false}, {dir + "/./" + name, true}, {dir + "/x/../" + name, true}, {dir + "/%2e/" + name, true},
		{path + ";v=1", false}, {path + ".json", false}, {path + "?", true}, {path + "?x=1", true}, {path + "%20", false}}
	if name != "" {
		escaped := "%" + hexByte(name[0]) + name[1:]
		all = append(all, spelling{dir + "/" + strings.ToUpper(name), false}, spelling{dir + "/" + strings.ToUpper(name[:1]) + name[1:], false},
			spelling{dir + "/" + escaped, true}, spelling{dir + "/%25" + escaped[1:], false})
	}
	if dir != "" {
		all = append(all, spelling{dir + "//" + name, false}, spelling{dir + "%2f" + name, false}, spelling{dir + "%5c" + name, false},
			spelling{"/" + strings.ToUpper(dir[1:]) + "/" + name, false})
	}
	return slices.DeleteFunc(all, func(s spelling) bool { return s.path == path })
}

func hexByte(c byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[c>>4], digits[c&15]})
}

func (d *driver) trySpellings(ctx context.Context, t *tally) error {
	all := spellings(d.part.endpoints[0].path)
	late, alike, chance := false, 0, ""
	for _, s := range all {
		r := d.plain()
		r.path = s.path
		a, got, err := d.attempt(ctx, t, r)
		if err != nil {
			return err
		}
		if got == escaped && !s.same {
			if got, err = d.control(ctx, r); err != nil {
				return err
			}
			if got == another {
				alike++
			}
		}
		switch got {
		case escaped:
			d.broken("spelling", a, "%s was answered %d as the endpoint answers, while %s is refused", s.path, a.status, d.part.endpoints[0].path)
			return nil
		case tooLate:
			late = true
		case byChance:
			chance = s.path
		}
	}
	disguised, after, err := d.tryDisguises(ctx, t)
	if err != nil || disguised {
		return err
	}
	switch {
	case chance != "":
		d.untested("spelling", Unobservable.because("%s was admitted once, and refused when it was sent again: what is admitted now and then hides whether a spelling matters", chance))
	case late || after:
		d.untested("spelling", NeedsMore.because("the window ended before all of it could be tested"))
	case alike > 0:
		d.kept("spelling", "refused, or answered as something else, with %d spellings; %d more are answered as any path is, so that they need not be the endpoint",
			len(all)-alike, alike)
	default:
		d.kept("spelling", "refused, or answered as something else, with %d spellings", len(all))
	}
	return nil
}

// control sends what is surely not the endpoint. Where that is answered just as the endpoint is, so may be a spelling that is nothing
// either.
func (d *driver) control(ctx context.Context, r request) (try, error) {
	dir := r.path[:strings.LastIndexByte(d.part.endpoints[0].path, '/')]
	r.path = "/weir-verify-nothing" + dir + "/weir-verify-nothing"
	r.beside = true
	a, err := d.send(ctx, r)
	if err != nil {
		return 0, err
	}
	if a.status >= 500 || a.admitted() && d.answersLikeEndpoint(a) {
		return another, nil
	}
	return escaped, nil
}

// tryLanguages asks for refusals in other languages.
func (d *driver) tryLanguages(ctx context.Context, t *tally) error {
	base := t.firstRefused
	if wrong := wrongRefusal(base); wrong != "" {
		d.untested("language", Unobservable.because("a 429 in no language that was asked for has not the shape: %s", wrong))
		return nil
	}
	var seen []string
	for _, language := range []string{"en", "de", "fr;q=0.9, en;q=0.1", "tlh"} {
		a, got, err := d.attempt(ctx, t, d.plain().with("Accept-Language", language))
		if err != nil {
			return err
		}
		if got == escaped {
			d.broken("shared", a, "answered %d with Accept-Language: %s, while it is refused without", a.status, language)
		}
		if got != refused {
			d.untested("language", NeedsMore.because("it was not refused in every language"))
			return nil
		}
		d.count(a)
		said := a.header.Get("Content-Language")
		if wrong := wrongRefusal(a); wrong != "" {
			d.broken("language", a, "asked for in %s: %s", language, wrong)
		} else if said == "" && !sameError(a.body, base.body) {
			d.broken("language", a, "asked for in %s, the message is another one, and Content-Language does not say in which language it is", language)
		}
		if said == "" {
			said = "none"
		}
		seen = append(seen, language+" → "+said)
	}
	d.kept("language", "the same shape; Accept-Language → Content-Language: %s", strings.Join(seen, ", "))
	return nil
}

// wrongRefusal says what is wrong with a 429's shape; empty: nothing.
func wrongRefusal(a *answer) string {
	if wrong := problem(a.header, append(standing(), headers.RetryAfter)...); wrong != "" {
		return wrong
	}
	if wrong := wrongType(a); wrong != "" {
		return wrong
	}
	return wrongBody(a.body)
}

// tryOther sends a request of the caller whose budget should be whole.
func (d *driver) tryOther(ctx context.Context, t *tally) error {
	if !d.second.isZero() {
		return nil
	}
	a, err := d.send(ctx, d.other.request(d.run.options, d.part.endpoints[0]))
	if err != nil {
		return err
	}
	d.check(a)
	d.checkStanding(a)
	switch {
	case a.admitted():
		d.kept("separate", "another caller was answered %d with Remaining %d, while this one was refused", a.status, a.remaining)
	case a.reset == t.reset && a.limit == t.limit && d.isApart(t.limit) && d.otherHad(t):
		d.broken("separate", a, "another caller was refused until the same Reset, though it had sent 1 request")
	default:
		d.untested("separate", Shared.because("the other caller's own budget was spent"))
	}
	return nil
}

// otherHad reports whether the other caller had budget left in a window that cannot be taken for main's.
func (d *driver) otherHad(t *tally) bool {
	o := d.otherLast
	if o == nil || d.isLost() || !o.admitted() || o.limit != t.limit || o.remaining < d.part.cost {
		return false
	}
	return o.reset != t.reset || d.isSure(o.limit)
}

// tryUnverified sends a credential that is nearly main's.
func (d *driver) tryUnverified(ctx context.Context, t *tally) error {
	if d.unverified == nil {
		return nil
	}
	bad := caller{authorization: tampered(d.main.authorization), agent: d.stranger}
	a, err := d.send(ctx, bad.request(d.run.options, d.part.endpoints[0]))
	if err != nil {
		return err
	}
	d.check(a)
	before := d.unverified
	lasts := a.date != absent && a.date < before.reset // the address's next window may end when main's does
	if lasts && !a.admitted() && d.isApart(t.limit) && a.reset == t.reset && a.limit == t.limit && before.limit == t.limit && before.admitted() && before.reset != t.reset && before.remaining > d.part.cost {
		d.broken("unverified", a, "a credential that does not verify was refused with the valid one's window, and not its address's")
	}
	if a.admitted() && a.status != http.StatusUnauthorized && a.status < 500 {
		d.broken("unverified", a, "a credential that does not verify was answered %d", a.status)
	}
	return nil
}

// whyNotSpent returns why nothing could be tried with a spent budget.
func (d *driver) whyNotSpent() gap {
	if d.refusal != 0 {
		return Unobservable.because("it refuses with %d and without the fields, so that nothing says which window refused", d.refusal)
	}
	return Unobservable.because("the budget could not be used up")
}
