package verify

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/headers"
)

// look sends a request or two of each kind while there is budget.
func (d *driver) look(ctx context.Context) error {
	d.does("having a first look")
	first, err := d.askWith(ctx, d.plain().with("Origin", verifyOrigin))
	if err != nil {
		return err
	}
	if !first.admitted() {
		// A new credential may be refused unread where its address has spent its own budget (D16).
		if d.apart == sourceAgent && d.isSure(first.limit) && first.limit == d.part.window.Limit {
			d.broken("admitted", first, "the first request of a new caller was refused")
		}
		if first, err = d.afterReset(ctx, first); err != nil || !first.admitted() {
			return err
		}
	}
	d.checkExposed(first)
	if first.status == http.StatusUnauthorized && d.credential != "" {
		d.disown()
	}
	if err := d.lookTwice(ctx); err != nil {
		return err
	}
	if d.seemsExempt() {
		return d.setAside(ctx)
	}
	if d.hammered == 0 { // what comes first after a spent budget may be charged to the address, too (D16)
		d.checkFresh(first, "the first request of a new caller")
	}
	for _, step := range []func(context.Context) error{d.lookAtOther, d.lookAtPreflight, d.lookAtUnverified} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// disown takes note that main's credential is none to the deployment: it is counted by its address.
func (d *driver) disown() {
	d.stands = NeedsInput.because("the %s is answered 401; what was tested is the budget of the address", d.credential)
	d.second, d.credential, d.apart, d.alone = d.stands, "", "", false
}

// seemsExempt reports whether main's answers are those of a caller that the policy exempts: all of the limit is left, whatever was sent.
func (d *driver) seemsExempt() bool {
	if len(d.part.limiter.Exempt) == 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tallies {
		if t.refused > 0 || slices.ContainsFunc(t.admitted, func(s counted) bool { return s.remaining != s.limit }) {
			return false
		}
	}
	return len(d.tallies) > 0
}

// setAside ends the verification of a limiter that does not limit main.
func (d *driver) setAside(ctx context.Context) error {
	if err := d.provoke(ctx); err != nil {
		return err
	}
	for _, c := range Clauses {
		d.untested(c.ID, Unobservable.because("this caller is exempt, it seems: the policy has such callers, and Remaining stays all of the limit"))
	}
	return errDone
}

// afterReset waits for the window that a 429 names, where it may, and asks again.
func (d *driver) afterReset(ctx context.Context, refused *answer) (*answer, error) {
	t := d.now()
	if d.run.options.Quick || t == nil || t.ends.isZero() || d.tooFar(d.end(t).to) != nil {
		return refused, nil
	}
	if err := d.wait(ctx, d.end(t).to.Add(soon), "waiting for a budget that was spent before"); err != nil {
		return nil, err
	}
	return d.askWith(ctx, d.plain().with("Origin", verifyOrigin))
}

// soon is how long after the end of a window something is sent that should be in the next one.
const soon = 20 * time.Millisecond

// checkFresh wants the whole budget for a caller that nobody else can be.
func (d *driver) checkFresh(a *answer, who string) {
	if !d.steady || !d.isSure(a.limit) || a.limit != d.part.window.Limit || a.remaining == absent || !a.admitted() {
		return
	}
	if whole := a.limit - d.part.cost; a.remaining < whole {
		d.broken("separate", a, "%s had Remaining %d, and not %d: others spend its budget", who, a.remaining, whole)
	}
}

// isAlone reports whether nobody else can use main's window of that limit.
func (d *driver) isAlone(limit int64) bool {
	if !d.alone {
		return false
	}
	return !slices.ContainsFunc(d.lengthsOf(limit), func(per time.Duration) bool { return per != d.part.window.Per })
}

// isSure reports whether main's requests that were answered are all that such a window can have counted.
func (d *driver) isSure(limit int64) bool { return d.isAlone(limit) && !d.isLost() }

func (d *driver) isLost() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost > 0
}

// lookAtOther sends a request of another caller.
func (d *driver) lookAtOther(ctx context.Context) error {
	if !d.second.isZero() {
		d.untested("separate", d.second)
		return nil
	}
	ask := func(ctx context.Context) (*answer, error) {
		a, err := d.send(ctx, d.other.request(d.run.options, d.part.endpoints[0]))
		if err != nil {
			return nil, err
		}
		d.check(a)
		d.checkStanding(a)
		if d.otherLast == nil {
			d.checkFresh(a, "the first request of another new caller")
		}
		d.otherLast = a
		return a, nil
	}
	before := d.last
	switch a, err := ask(ctx); {
	case err != nil:
		return err
	case a.status == http.StatusUnauthorized && before.status != http.StatusUnauthorized:
		d.second = NeedsInput.because("the second caller that was tried is answered 401, so that it is counted by its address")
		d.untested("separate", d.second)
		return nil
	}
	after, err := d.ask(ctx)
	if err != nil {
		return err
	}
	spent, ok := d.between(before, after)
	if !ok || !d.steady || spent == 0 || !d.isApart(after.limit) {
		return nil
	}
	if after, ok, err = d.confirm(ctx, after, ask); ok {
		d.broken("separate", after, "requests of another caller each took a unit; Remaining is %d", after.remaining)
	}
	return err
}

// confirm makes sure that what is between two requests of main's takes a unit of its window each time, and that nothing else does. Where
// nobody else can use the window, that is so already.
func (d *driver) confirm(ctx context.Context, after *answer, ask func(context.Context) (*answer, error)) (*answer, bool, error) {
	if d.isSure(after.limit) {
		return after, true, nil
	}
	for _, times := range []int{0, 3, 0, 2} {
		before := after
		for range times {
			if _, err := ask(ctx); err != nil {
				return nil, false, err
			}
		}
		var err error
		if after, err = d.ask(ctx); err != nil {
			return nil, false, err
		}
		if spent, ok := d.between(before, after); !ok || spent != int64(times)*d.part.cost {
			return nil, false, nil
		}
	}
	return after, true, nil
}

// lookTwice sees whether two requests take two units: what something between two requests takes could not be told otherwise.
func (d *driver) lookTwice(ctx context.Context) error {
	before, err := d.ask(ctx)
	if err != nil {
		return err
	}
	r := d.plain()
	r.fresh = true
	after, err := d.askWith(ctx, r)
	if err != nil {
		return err
	}
	spent, ok := d.between(before, after)
	d.steady = ok && spent == 0
	if ok {
		d.step = d.part.cost + spent
	}
	return nil
}

func unsteady() gap {
	return Shared.because("Remaining does not go down by one from one request to the next here, so that what something between them takes cannot be told")
}

// preflightLimiter is the name of the built-in policy's own limiter, which counts preflights wherever a policy has it.
const preflightLimiter = "widget-other"

// preflightsElsewhere reports whether preflights of the endpoint are counted, and not by this limiter.
func (d *driver) preflightsElsewhere() (counted bool, why gap) {
	path := d.part.endpoints[0].path
	if d.name == preflightLimiter {
		return false, inherently("preflights are counted by this limiter")
	}
	if isUnder(path, "/api/v1/widget") || isUnder(path, "/v1/wp") {
		if slices.Contains(limiterNames(d.run.options.Policy), preflightLimiter) {
			return true, gap{}
		}
	}
	covered := d.run.plan.routes.Match(http.MethodOptions, path).Limiter()
	switch {
	case covered == nil:
		return false, inherently("the policy counts no preflights here")
	case covered.Name == d.name:
		return false, inherently("the policy counts preflights here as any other request")
	}
	for _, r := range d.part.limiter.Routes {
		if r.Method == "" && r.Prefix && strings.HasPrefix(path, r.Path) {
			return false, inherently("the policy counts preflights here as any other request")
		}
	}
	return true, gap{}
}

func isUnder(path, prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }

// lookAtPreflight asks for leave as a browser does, between two requests of main's.
func (d *driver) lookAtPreflight(ctx context.Context) error {
	counted, why := d.preflightsElsewhere()
	if !counted {
		d.untested("fields-preflight", why)
		d.untested("preflight-free", why)
		return nil
	}
	e := d.part.endpoints[0]
	preflight := request{method: http.MethodOptions, path: e.path, fields: map[string]string{
		"Origin": verifyOrigin, "Access-Control-Request-Method": e.method, "Access-Control-Request-Headers": "authorization,content-type",
	}}
	ask := func(ctx context.Context) (*answer, error) {
		a, err := d.send(ctx, preflight)
		if err == nil {
			d.checkPreflight(a)
		}
		return a, err
	}
	before, err := d.ask(ctx)
	if err != nil {
		return err
	}
	if _, err := ask(ctx); err != nil {
		return err
	}
	after, err := d.ask(ctx)
	if err != nil {
		return err
	}
	switch spent, ok := d.between(before, after); {
	case !before.complete() || !after.complete():
		d.untested("preflight-free", Unobservable.because("the answers lack the fields that would tell"))
		return nil
	case !ok:
		d.untested("preflight-free", NeedsMore.because("the window ended, or its budget, around the preflight"))
		return nil
	case !d.steady:
		d.untested("preflight-free", unsteady())
		return nil
	case spent == 0:
		d.kept("preflight-free", "Remaining %d, a preflight, Remaining %d", before.remaining, after.remaining)
		return nil
	}
	sure, ok, err := d.confirm(ctx, after, ask)
	if ok {
		d.broken("preflight-free", sure, "Remaining %d, a preflight, Remaining %d; so each time", before.remaining, after.remaining)
	}
	d.untested("preflight-free", Shared.because("others use the same budget"))
	return err
}

func (d *driver) checkPreflight(a *answer) {
	if a.admitted() {
		d.checkFields("fields-preflight", a)
		return
	}
	if problem(a.header, standing()...) == "" {
		d.kept("fields-preflight", "on a preflight that was refused, its own budget being spent")
	}
	d.checkRefusal(a)
}

// between returns how many units others spent of main's window between two requests of main's. It is not ok where the answers do not tell.
func (d *driver) between(before, after *answer) (spent int64, ok bool) {
	if before == nil || !before.complete() || !after.complete() || !before.admitted() || !after.admitted() ||
		before.limit != after.limit || before.reset != after.reset || d.isLost() {
		return 0, false
	}
	return before.remaining - after.remaining - d.part.cost, true
}

// lookAtUnverified sends credentials that do not verify, between two requests of main's.
func (d *driver) lookAtUnverified(ctx context.Context) error {
	if d.credential == "" || d.main.authorization == "" {
		d.untested("unverified", d.noneToDoubt())
		return nil
	}
	before := d.last
	if err := d.sendUnverified(ctx); err != nil {
		return err
	}
	after, err := d.ask(ctx)
	if err != nil {
		return err
	}
	switch spent, ok := d.between(before, after); {
	case !ok:
		d.untested("unverified", NeedsMore.because("the window ended, or its budget, meanwhile"))
		return nil
	case !d.steady:
		d.untested("unverified", unsteady())
		return nil
	case spent != 0 && (d.apart != d.credential || !d.isApart(after.limit)):
		d.untested("unverified", Unobservable.because("the window with the least left is not counted by the credential"))
		return nil
	case spent == 0:
		d.kept("unverified", "401, each counted by the address; the valid one's Remaining went from %d to %d meanwhile", before.remaining, after.remaining)
		return nil
	}
	bad := caller{authorization: tampered(d.main.authorization), agent: d.stranger}.request(d.run.options, d.part.endpoints[0])
	sure, ok, err := d.confirm(ctx, after, func(ctx context.Context) (*answer, error) { return d.send(ctx, bad) })
	if ok {
		d.broken("unverified", sure, "Remaining %d, then credentials that do not verify, then Remaining %d: they spent the valid one's budget", before.remaining, after.remaining)
	}
	d.untested("unverified", Shared.because("others use the same budget"))
	return err
}

// noneToDoubt says why there is no credential that could be made one that does not verify.
func (d *driver) noneToDoubt() gap {
	if !d.stands.isZero() {
		return d.stands
	}
	return inherently("it counts by no credential")
}

// sendUnverified sends three requests that nobody can be charged for but their address.
func (d *driver) sendUnverified(ctx context.Context) error {
	var before *answer
	for _, credential := range []string{tampered(d.main.authorization), forged(d.main.authorization), ""} {
		bad := caller{authorization: credential, agent: d.stranger}
		r := bad.request(d.run.options, d.part.endpoints[0]).with("Origin", verifyOrigin)
		if credential == "" {
			r = r.with("Authorization", "") // nor that of every request
		}
		a, err := d.send(ctx, r)
		if err != nil {
			return err
		}
		d.check(a)
		d.checkStanding(a)
		d.checkExposed(a)
		if a.admitted() && a.status != http.StatusUnauthorized && a.status < 500 {
			d.broken("unverified", a, "a credential that does not verify, or none, was answered %d", a.status)
		}
		if before != nil && d.steady {
			d.judgeEscape(before, a)
		}
		before = a
	}
	d.unverified = before
	return nil
}

// judgeEscape wants requests with different bad credentials to be charged to one budget.
func (d *driver) judgeEscape(before, after *answer) {
	if !before.complete() || !after.complete() || after.date == absent || !before.admitted() || !after.admitted() || before.limit != after.limit {
		return
	}
	switch {
	case before.reset == after.reset && after.remaining >= before.remaining:
		d.broken("unverified", after, "Remaining was %d with one bad credential, and %d with the next: they are not charged to one budget", before.remaining, after.remaining)
	case before.reset != after.reset && after.date < before.reset-1:
		d.suspect("unverified", after, "Reset was %d with one bad credential, and %d with the next: they are not charged to one budget", before.reset, after.reset)
	}
}

// checkExposed judges what a browser on another origin may read of an answer.
func (d *driver) checkExposed(a *answer) {
	list := strings.Join(a.header.Values("Access-Control-Expose-Headers"), ",")
	var missing []string
	for _, name := range append(standing(), headers.RetryAfter) {
		if !slices.ContainsFunc(strings.Split(list, ","), func(item string) bool {
			item = strings.TrimSpace(item)
			return strings.EqualFold(item, name) || item == "*" && a.header.Get("Access-Control-Allow-Credentials") != "true"
		}) {
			missing = append(missing, name)
		}
	}
	origin := a.header.Get("Access-Control-Allow-Origin")
	switch {
	case len(missing) == 0 && origin == "":
		d.kept("exposed", "all four named, though origin %s is not allowed", verifyOrigin)
	case len(missing) == 0:
		d.kept("exposed", "all four, also on errors and 429s")
	case origin == "" && !isUnder(a.request.path, "/api/v1/widget"):
		d.untested("exposed", inherently("answers say nothing to browsers on other origins"))
	case a.status >= 502:
	default:
		d.broken("exposed", a, "Access-Control-Expose-Headers on a %d does not name %s", a.status, strings.Join(missing, ", "))
	}
}

// makeRoom sees to it that the window that is used up does not end too soon.
func (d *driver) makeRoom(ctx context.Context) error {
	t := d.now()
	if t == nil || t.ends.isZero() || d.run.options.Quick {
		return nil
	}
	end := d.end(t)
	need := min(10*time.Second, d.part.window.Per/3)
	if d.last != nil {
		each := d.last.at.Sub(d.last.sent)
		need = max(need, min(each*time.Duration(d.part.drain/d.run.options.Workers)*2, d.part.window.Per-2*time.Second))
	}
	left := time.Until(end.to)
	if pause := d.pause(); !d.parts.tried && pause > 0 {
		left = max(time.Until(end.from), 0)
		need = max(need, min(need+pause, d.part.window.Per-300*time.Millisecond))
	}
	if left >= need || time.Until(end.to) <= 0 || d.tooFar(end.to) != nil {
		return nil
	}
	if err := d.wait(ctx, end.to.Add(soon), fmt.Sprintf("waiting for a whole window, as the present one ends in %s", seconds(left))); err != nil {
		return err
	}
	_, err := d.ask(ctx)
	return err
}
