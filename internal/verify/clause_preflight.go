package verify

import (
	"context"
	"net/http"
	"slices"
	"strings"
)

// A preflighting is one preflight between two of main's requests. fields-preflight reads its answer
// as well.
type preflighting struct {
	why           gap // why none was sent; zero: one was
	before, after *answer
	again         func(context.Context) (*answer, error) // sends another preflight
}

// sendPreflight sends a preflight as a browser does.
func (l *timeline) sendPreflight(ctx context.Context) (p preflighting, err error) {
	if p.why = l.whyNoPreflight(); !p.why.isZero() {
		return p, nil
	}
	e := l.part.endpoints[0]
	preflight := request{method: http.MethodOptions, host: l.plain().host, path: e.path, fields: map[string]string{
		"Origin": verifyOrigin, "Access-Control-Request-Method": e.method, "Access-Control-Request-Headers": "authorization,content-type",
	}}
	p.again = func(ctx context.Context) (*answer, error) {
		a, err := l.send(ctx, preflight)
		if err == nil {
			l.judgePreflight(a)
		}
		return a, err
	}
	if p.before, err = l.ask(ctx); err != nil {
		return p, err
	}
	if _, err = p.again(ctx); err != nil {
		return p, err
	}
	p.after, err = l.ask(ctx)
	return p, err
}

// judgePreflight passes a preflight's answer to the checks. Only a refusal is judged like other
// answers.
func (l *timeline) judgePreflight(a *answer) {
	if l.isDenied(a) {
		return
	}
	l.checks.each(func(h *hooks) {
		if h.preflight != nil {
			h.preflight(a)
		}
	})
	if !a.admitted() {
		l.judge(a)
	}
}

// preflightLimiter is the limiter of the built-in policy that counts all preflights. Any policy
// that has it counts them so, and has the contract's surfaces.
const preflightLimiter = "widget-other"

func (r *runner) countsPreflights() bool {
	return slices.Contains(limiterNames(r.options.Policy), preflightLimiter)
}

// whyNoPreflight returns why preflights of the endpoint are not counted apart from it; the zero gap
// means that they are.
func (l *timeline) whyNoPreflight() gap {
	path := l.part.endpoints[0].path
	if l.name == preflightLimiter {
		return inherently("preflights are counted by this limiter")
	}
	if (isUnder(path, "/api/v1/widget") || isUnder(path, "/v1/wp")) && l.run.countsPreflights() {
		return gap{}
	}
	covered := l.run.plan.routes.Match(http.MethodOptions, l.authority(l.plain()), path).Limiter()
	switch {
	case covered == nil:
		return inherently("the policy counts no preflights here")
	case covered.Name == l.name:
		return inherently("the policy counts preflights here like any other request")
	}
	for _, r := range l.part.limiter.Routes {
		if r.Method == "" && r.Prefix && begins(path, r.Path) {
			return inherently("the policy counts preflights here like any other request")
		}
	}
	return gap{}
}

func isUnder(path, prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }

// checkPreflightFree compares Remaining before and after a preflight.
func checkPreflightFree(c *check) hooks {
	return hooks{readsCount: true, preflighted: func(ctx context.Context, p preflighting) error {
		if !p.why.isZero() {
			c.untested(p.why)
			return nil
		}
		before, after := p.before, p.after
		switch spent, ok := c.between(before, after); {
		case !before.complete() || !after.complete():
			c.untested(Unobservable.because("the answers lack the fields that would show it"))
			return nil
		case !ok:
			c.untested(NeedsMore.because("the window or its budget ended around the preflight"))
			return nil
		case !c.steady:
			c.untested(unsteady())
			return nil
		case spent == 0:
			c.kept("Remaining %d, a preflight, Remaining %d", before.remaining, after.remaining)
			return nil
		}
		sure, ok, err := c.confirm(ctx, after, p.again)
		if ok {
			c.broken(sure, "Remaining %d, a preflight, Remaining %d; and so each time", before.remaining, after.remaining)
		}
		c.untested(Shared.because("others use the same budget"))
		return err
	}}
}
