package verify_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// countingDefects admit the wrong requests. If other callers may spend a budget,
// such as an API token's, they may be the cause. So such a defect is found on the
// limiter by session, whose sessions are the verifier's own.
func countingDefects() []defect {
	set := func(change func(*breaks)) func(*api) { return func(a *api) { change(&a.breaks) } }
	return []defect{
		{"one too many is admitted", set(func(b *breaks) { b.spare = 1 }),
			implies{"admitted": "", "remaining": "0 is said twice", "refused-remaining?": "what follows 0 is admitted, where nothing else is under way"}},
		{"one too few is admitted", set(func(b *breaks) { b.spare = -1 }), implies{"admitted": ""}},
		{"no more than half is admitted", set(func(b *breaks) { b.spare = -10 }), implies{"admitted": ""}},
		{"nothing is ever refused", set(func(b *breaks) { b.unlimited = true }),
			implies{"admitted": "", "remaining": "0 is said again and again", "refused-remaining": "what follows 0 is admitted"}},
		{"everything is refused", set(func(b *breaks) { b.always = true }), implies{"admitted?@widget-leads": ""}},
		{"it looks, and counts later", func(a *api) {
			var n atomic.Int64
			a.breaks.race = 10 * time.Millisecond
			// So that the requests do not run in step.
			a.before = func() time.Duration { return time.Duration(n.Add(1)%7) * time.Millisecond }
		},
			implies{"admitted": "", "remaining": "0 is said more than once"}},
		{"a request costs two", set(func(b *breaks) { b.skips = 1 }), implies{"admitted@widget-leads": "", "remaining@widget-leads": "it skips"}},
		{"the count is lost half-way", set(func(b *breaks) { b.forgets = 15 }), implies{"remaining": "", "admitted": "what was admitted before is admitted again", "fixed-window?": "Remaining rises"}},
		{"the window is lost half-way", func(a *api) {
			a.breaks.forgets, a.breaks.restarts = 15, true
			a.before = func() time.Duration { return 600 * time.Millisecond }
		}, implies{"reset-constant": "", "fixed-window": "Reset moves", "restored?": "windows begin out of turn", "refused-free?": "windows begin out of turn"}},

		{"refused requests are charged to the next window", set(func(b *breaks) { b.debts = true }), implies{"refused-free": ""}},
		{"a refused request prolongs the window", set(func(b *breaks) { b.prolongs = true }),
			implies{"reset-constant": "", "restored": "it is not, when the first Reset comes"}},
		{"a refused request prolongs the window, and Reset hides it", set(func(b *breaks) { b.prolongs, b.silently = true, true }),
			implies{"restored": "", "retry-after": "waiting it is not enough", "window": "Reset comes, and the window goes on"}},
		{"a request refused by one window is charged to the other", set(func(b *breaks) { b.chargesOthers = true }), implies{"refused-free?@widget-init": ""}},

		{"the budget is restored a second before Reset", set(func(b *breaks) { b.restores = -1 }), implies{"restored": "", "retry-after": "it counts to a Reset that is too late"}},
		{"the budget is restored a second after Reset", set(func(b *breaks) { b.restores = 1 }),
			implies{"restored": "", "retry-after": "waiting it is not enough", "window": "Reset comes, and the window goes on"}},
		{"the budget is restored ten seconds after Reset", set(func(b *breaks) { b.restores = 10 }),
			implies{"restored": "", "retry-after": "waiting it is not enough", "window": "Reset comes, and the window goes on"}},
		{"the budget is restored with the clock's minute", set(func(b *breaks) { b.aligned = true }), implies{"restored": "", "retry-after": "it counts to a Reset that is too late"}},
		{"the budget comes back unit by unit", set(func(b *breaks) { b.slides = true }), implies{"restored@widget-leads": "", "fixed-window": "what was spent late comes back late"}},
		{"the budget is never restored", set(func(b *breaks) { b.never = true }), implies{"restored@widget-leads": ""}},
		{"half the budget is restored", set(func(b *breaks) { b.half = true }), implies{"restored@widget-leads": ""}},
	}
}

// refusalDefects break a 429's format.
func refusalDefects() []defect {
	set := func(which func(*exchange) bool, name, value string) func(*api) {
		return edits(func(x *exchange) {
			if which(x) {
				x.header.Set(name, value)
			}
		})
	}
	body := func(which func(*exchange) bool, body string) func(*api) {
		return edits(func(x *exchange) {
			if which(x) {
				x.body = body
			}
		})
	}
	status := func(code int) func(*api) {
		return edits(func(x *exchange) {
			if refused(x) {
				x.status = code
			}
		})
	}
	return []defect{
		{"a 429 is text/plain", set(refused, "Content-Type", "text/plain"), implies{"refused-type": ""}},
		{"a 429 has no type", set(refused, "Content-Type", ""), implies{"refused-type": ""}},
		{"a 429 is problem+json", set(refused, "Content-Type", "application/problem+json"), implies{"refused-type": ""}},
		{"a 429 has another code", body(refused, `{"error":{"code":"too_many_requests","message":"Slow down."}}`), implies{"refused-body": ""}},
		{"a 429 has no message", body(refused, `{"error":{"code":"rate_limited"}}`), implies{"refused-body": ""}},
		{"a 429's message is no string", body(refused, `{"error":{"code":"rate_limited","message":{"en":"Slow down."}}}`), implies{"refused-body": ""}},
		{"a 429's message is empty", body(refused, `{"error":{"code":"rate_limited","message":""}}`), implies{"refused-body": ""}},
		{"a 429's error is a string", body(refused, `{"error":"rate_limited"}`), implies{"refused-body": ""}},
		{"a 429's error is in no object", body(refused, `{"code":"rate_limited","message":"Slow down."}`), implies{"refused-body": ""}},
		{"a 429 has no body", body(refused, ``), implies{"refused-body": ""}},
		{"a 429's body is a page", body(refused, `<html><body>429 Too Many Requests</body></html>`), implies{"refused-body": ""}},
		{"a 429's body goes on after the object", body(refused, `{"error":{"code":"rate_limited","message":"Slow down."}}{}`), implies{"refused-body": ""}},
		{"a 403 refuses", status(http.StatusForbidden), implies{"refused-status": ""}},
		{"a 503 refuses", status(http.StatusServiceUnavailable), implies{"refused-status": ""}},
		{"a 503 refuses without the fields", edits(func(x *exchange) {
			if refused(x) {
				drop(every)(x)
				x.status = http.StatusServiceUnavailable
			}
		}), implies{"refused-status": "", "fields-refused": "it stands for a 429", "fields-5xx?": "so it is, until it is seen to refuse"}},

		{"the code is translated", edits(func(x *exchange) {
			if foreigners(x) {
				x.body = fmt.Sprintf(`{"error":{"code":"limite_%s","message":%q}}`, x.language(), messages()[x.language()])
			}
		}), implies{"language": ""}},
		{"one language's body is not JSON", body(germans, `{"error":{"code":"rate_limited","message":"Nicht so "schnell"."}}`), implies{"language": ""}},
		{"a translated 429 is a page", edits(func(x *exchange) {
			if foreigners(x) {
				x.header.Set("Content-Type", "text/html")
			}
		}), implies{"language": ""}},
		{"a translated 429 does not say its language", set(foreigners, "Content-Language", ""), implies{"language": ""}},
		{"a translated 429 lacks the fields", edits(drop(foreigners)), implies{"language": ""}},
	}
}

// exposureDefects are visible only to browsers.
func exposureDefects() []defect {
	lacks := func(name string) func(*api) {
		return edits(func(x *exchange) {
			x.header.Set(exposeField, strings.ReplaceAll(x.header.Get(exposeField), name, "X-Request-Id"))
		})
	}
	return []defect{
		{"no field is exposed", edits(without(every, exposeField)), implies{"exposed@widget-leads": ""}},
		{"Limit is not exposed", lacks(limitField), implies{"exposed@widget-leads": ""}},
		{"Remaining is not exposed", lacks(remainingField), implies{"exposed@widget-leads": ""}},
		{"Reset is not exposed", lacks(resetField), implies{"exposed@widget-leads": ""}},
		{"Retry-After is not exposed", lacks(afterField), implies{"exposed@widget-leads": ""}},
		{"the fields are exposed on what is admitted alone", edits(without(refused, exposeField)), implies{"exposed@widget-leads": ""}},
		{"the fields are exposed on what succeeds alone", edits(without(func(x *exchange) bool { return x.status >= 400 }, exposeField)), implies{"exposed@widget-leads": ""}},
		{"the fields are exposed on 429 alone", edits(without(admitted, exposeField)), implies{"exposed@widget-leads": ""}},
	}
}
