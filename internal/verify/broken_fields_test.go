package verify_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
)

const (
	limitField     = "X-RateLimit-Limit"
	remainingField = "X-RateLimit-Remaining"
	resetField     = "X-RateLimit-Reset"
	afterField     = "Retry-After"
	exposeField    = "Access-Control-Expose-Headers"
)

// drop removes all four fields from the answers that which selects.
func drop(which func(*exchange) bool) func(*exchange) {
	return without(which, limitField, remainingField, resetField, afterField)
}

// without removes fields from the answers that which selects.
func without(which func(*exchange) bool, fields ...string) func(*exchange) {
	return func(x *exchange) {
		for _, f := range fields {
			if which(x) {
				x.header.Del(f)
			}
		}
	}
}

// with changes the value of a field that is present, in the answers that which
// selects.
func with(which func(*exchange) bool, field string, value func(x *exchange, v int) string) func(*exchange) {
	return func(x *exchange) {
		if v, err := strconv.Atoi(x.header.Get(field)); err == nil && which(x) {
			x.header.Set(field, value(x, v))
		}
	}
}

func plus(n int) func(*exchange, int) string {
	return func(_ *exchange, v int) string { return strconv.Itoa(v + n) }
}

func value(s string) func(*exchange, int) string { return func(*exchange, int) string { return s } }

// Selections of answers.

func every(*exchange) bool         { return true }
func refused(x *exchange) bool     { return x.status == http.StatusTooManyRequests }
func admitted(x *exchange) bool    { return x.admitted && !x.isPreflight() }
func succeeded(x *exchange) bool   { return x.status < 300 && !x.isPreflight() }
func preflighted(x *exchange) bool { return x.isPreflight() }
func foreign(x *exchange) bool {
	return x.r.Header.Get("Accept-Language") != "" && x.language() != "en"
}
func foreigners(x *exchange) bool  { return refused(x) && foreign(x) }
func germans(x *exchange) bool     { return refused(x) && x.language() == "de" }
func notTheFirst(x *exchange) bool { return x.standing[0].remaining != x.standing[0].limit-1 }
func of(status int) func(*exchange) bool {
	return func(x *exchange) bool { return x.status == status }
}

func under(limiters ...string) func(*exchange) bool {
	return func(x *exchange) bool { return slices.Contains(limiters, x.rule.name) }
}

// everyNinthFails answers every ninth request of a limiter with a server error
// without the fields.
func everyNinthFails(status int) func(*api) {
	return func(a *api) {
		var answers atomic.Int64
		a.breaks.edit = func(x *exchange) {
			if answers.Add(1)%9 == 0 {
				x.fail(status, "trouble", "something went wrong")
				drop(every)(x)
			}
		}
	}
}

// fieldDefects are missing and malformed fields.
func fieldDefects() []defect {
	return []defect{
		{"the fields are missing on what succeeds", edits(drop(succeeded)), implies{"fields-served@wp-plugin": ""}},
		{"the fields are missing on 401", edits(drop(of(401))), implies{"fields-error": ""}},
		{"the fields are missing on 404", edits(drop(of(404))), implies{"fields-error": ""}},
		{"the fields are missing on 405", edits(drop(of(405))), implies{"fields-error": ""}},
		{"the fields are missing on what validation refuses", edits(drop(of(400))), implies{"fields-error": ""}},
		{"the fields are missing on a 500 now and then", everyNinthFails(http.StatusInternalServerError), implies{"fields-5xx": ""}},
		{"the fields are missing on a 502 now and then", everyNinthFails(http.StatusBadGateway), implies{"fields-5xx": ""}},
		{"the fields are missing on preflights", edits(drop(preflighted)), implies{"fields-preflight": ""}},
		{"the fields are missing on 429", edits(drop(refused)), implies{"fields-refused": ""}},
		{"Retry-After is missing on 429", edits(without(refused, afterField)), implies{"fields-refused": ""}},
		{"Limit is missing on 429", edits(without(refused, limitField)), implies{"fields-refused": ""}},
		{"Remaining is missing on 429", edits(without(refused, remainingField)), implies{"fields-refused": ""}},
		{"Reset is missing on 429", edits(without(refused, resetField)), implies{"fields-refused": ""}},
		{"Reset comes with 429 alone", edits(without(admitted, resetField)), implies{"fields-served@wp-plugin": "", "fields-error": "errors are admitted, too"}},
		{"the fields come with a window's first answer alone", edits(without(func(x *exchange) bool { return admitted(x) && notTheFirst(x) }, limitField, remainingField, resetField)),
			implies{"fields-served@wp-plugin": "", "fields-error": "errors are admitted, too"}},

		{"Limit comes twice", edits(func(x *exchange) { x.header.Add(limitField, x.header.Get(limitField)) }), everywhere()},
		{"Remaining comes twice", edits(func(x *exchange) { x.header.Add(remainingField, x.header.Get(remainingField)) }), everywhere()},
		{"Reset is empty", edits(with(every, resetField, value(""))), everywhere()},
		{"Reset is a fraction", edits(with(every, resetField, func(_ *exchange, v int) string { return strconv.Itoa(v) + ".0" })), everywhere()},
		{"Limit is a list with its window", edits(with(every, limitField, func(_ *exchange, v int) string { return strconv.Itoa(v) + ", " + strconv.Itoa(v) + ";w=60" })), everywhere()},
		{"Limit is negative", edits(with(every, limitField, func(_ *exchange, v int) string { return strconv.Itoa(-v) })), everywhere()},
		{"Reset is a date", edits(with(every, resetField, value("Sat, 01 Jan 2000 00:01:00 GMT"))), everywhere()},

		{"Retry-After comes with what is admitted", edits(func(x *exchange) {
			if admitted(x) {
				x.header.Set(afterField, "1")
			}
		}), implies{"retry-after-only-refused": ""}},
		{"Retry-After comes with errors", edits(func(x *exchange) {
			if x.status >= 400 && x.status != 429 {
				x.header.Set(afterField, "1")
			}
		}), implies{"retry-after-only-refused": ""}},
		{"Retry-After is a date", edits(with(refused, afterField, value("Sat, 01 Jan 2000 00:01:00 GMT"))), implies{"fields-refused": ""}},
		{"Retry-After is a fraction", edits(with(refused, afterField, func(_ *exchange, v int) string { return strconv.Itoa(v) + ".5" })), implies{"fields-refused": ""}},
		{"Retry-After is 0", edits(with(refused, afterField, value("0"))), implies{"retry-after": ""}},
		{"Retry-After is a second too short", edits(with(refused, afterField, plus(-1))), implies{"retry-after": ""}},
		{"Retry-After is a second too long", edits(with(refused, afterField, plus(1))), implies{"retry-after": ""}},
		{"Retry-After is the window's length", edits(with(refused, afterField, value("60"))), implies{"retry-after": ""}},
	}
}

// resetDefects are a Reset that is off by some seconds, with a correct Retry-After.
func resetDefects() []defect {
	var all []defect
	for _, off := range []int{-5, -3, -2, -1, 1, 2, 3, 5} {
		broken := implies{"restored": ""}
		if off < -1 || off > 1 { // a difference of one second may be a Date that is about to change
			broken["window"], broken["retry-after"] = "it is past, or too far ahead", "it is not how long that Reset takes"
		}
		all = append(all, defect{fmt.Sprintf("Reset is off by %+d s, and Retry-After is right", off), edits(with(every, resetField, plus(off))), broken})
	}
	return all
}

// valueDefects are wrong numbers in well-formed fields.
func valueDefects() []defect {
	hour := func(x *exchange) standing {
		for _, s := range x.standing {
			if s.per == 3600 {
				return s
			}
		}
		return x.standing[0]
	}
	return []defect{
		{"Limit is one more than the limit", edits(with(every, limitField, plus(1))), implies{"limit": ""}},
		{"Limit is that of another limiter", edits(with(under("widget-leads"), limitField, value("34"))), implies{"limit@widget-leads": ""}},
		{"Limit is that of another limiter on 429", edits(with(refused, limitField, value("1"))), implies{"limit": ""}},
		{"Limit is the hour's, and the rest the minute's", edits(with(under("widget-init"), limitField, func(x *exchange, _ int) string {
			return strconv.Itoa(hour(x).limit)
		})), implies{"window@widget-init": ""}},
		{"Reset is the hour's, and the rest the minute's", edits(with(under("widget-init"), resetField, func(x *exchange, _ int) string {
			return strconv.FormatInt(hour(x).reset, 10)
		})), implies{"window@widget-init": "", "retry-after@widget-init": "it is not how long that Reset takes"}},
		{"Reset is in seconds from now", edits(with(every, resetField, func(x *exchange, v int) string { return strconv.FormatInt(int64(v)-x.now.Unix(), 10) })),
			implies{"window": ""}},
		{"Reset is in milliseconds", edits(with(every, resetField, func(_ *exchange, v int) string { return strconv.Itoa(v) + "000" })), implies{"window": "", "retry-after": "it is not how long that Reset takes"}},
		{"Reset is past", edits(with(every, resetField, plus(-120))), implies{"window": "", "retry-after": "it is not how long that Reset takes", "restored": "it is refused after that time"}},
		{"Reset is an hour ahead", edits(with(every, resetField, plus(3600))), implies{"window": "", "retry-after": "it is not how long that Reset takes"}},
		{"Reset is a minute from each answer", edits(func(x *exchange) {
			x.header.Set(resetField, strconv.FormatInt(x.now.Unix()+x.standing[0].per, 10))
		}), implies{"reset-constant": "", "retry-after": "it is not how long that Reset takes", "fixed-window": "it moves with each request", "restored": "it is, before the Reset that was said last"}},
		{"Reset is another second on 429", edits(with(refused, resetField, plus(1))), implies{"reset-constant": "", "restored?": "it is, before that Reset"}},

		{"Remaining stands still", edits(with(admitted, remainingField, func(x *exchange, _ int) string { return strconv.Itoa(x.standing[0].limit - 1) })),
			implies{"remaining": ""}},
		{"Remaining skips", edits(with(admitted, remainingField, func(x *exchange, v int) string { return strconv.Itoa(max(0, 2*v-x.standing[0].limit)) })),
			implies{"remaining": "", "refused-remaining": "it is 0 half-way, and what follows is admitted"}},
		{"Remaining repeats under concurrency", func(a *api) { a.breaks.rereads = 1e6 }, implies{"remaining": ""}},
		{"Remaining is what was left before the request", edits(with(admitted, remainingField, plus(1))), implies{"remaining": ""}},
		{"Remaining is never 0", edits(with(admitted, remainingField, func(_ *exchange, v int) string { return strconv.Itoa(max(1, v)) })), implies{"remaining": ""}},
		{"Remaining is 1 on 429", edits(with(refused, remainingField, value("1"))), implies{"refused-remaining": ""}},
		{"Remaining is negative on 429", edits(with(refused, remainingField, value("-1"))), implies{"fields-refused": ""}},
	}
}

// everywhere lists the clauses that a malformed field on every answer breaks.
func everywhere() implies {
	return implies{"fields-served@wp-plugin": "", "fields-error": "", "fields-preflight": "", "fields-refused": ""}
}
