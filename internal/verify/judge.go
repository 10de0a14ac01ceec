package verify

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/headers"
)

// What one answer alone shows. Every judgement allows for what can lie between the decision and the answer: the decision fell between
// sending and receiving, and Date was written then or later, or is up to a second old where something on the way caches it.

// admitted reports whether the request was not refused by a limiter. A backend in trouble admits too: that is for others to judge.
func (a *answer) admitted() bool { return a.status != http.StatusTooManyRequests && !a.refused }

// check judges an answer of a path that the policy covers, whichever limiter counted it.
func (d *driver) check(a *answer) {
	switch {
	case !a.admitted():
		d.checkRefusal(a)
		return
	case a.status < 400:
		d.checkFields("fields-served", a)
	default:
		if a.status >= 500 {
			d.checkFields("fields-5xx", a)
		} else {
			d.checkFields("fields-error", a)
		}
		if a.complete() && d.run.book.verdict("fields-served", d.name) == "" {
			d.kept("fields-served", "on what was admitted and then answered %d: what is served in the end, valid bodies would show (real)", a.status)
		}
	}
	if values := a.header.Values(headers.RetryAfter); len(values) > 0 {
		d.broken("retry-after-only-refused", a, "a %d has Retry-After: %.40q", a.status, values[0])
		return
	}
	d.kept("retry-after-only-refused", "no other answer had it")
}

func (d *driver) checkFields(clause string, a *answer) {
	if wrong := problem(a.header, standing()...); wrong != "" {
		d.broken(clause, a, "on a %d %s", a.status, wrong)
		return
	}
	d.mu.Lock()
	seen := d.statuses[clause]
	if !slices.Contains(seen, a.status) {
		seen = append(seen, a.status)
		slices.Sort(seen)
		d.statuses[clause] = seen
	}
	text := fmt.Sprint(seen)
	d.mu.Unlock()
	d.kept(clause, "on answers with status %s", text[1:len(text)-1])
}

// checkRefusal judges a 429, whichever limiter refused.
func (d *driver) checkRefusal(a *answer) {
	if a.status == http.StatusTooManyRequests {
		d.kept("refused-status", "429 on every refusal")
	} else {
		d.broken("refused-status", a, "what is over the limit is refused with %d", a.status)
	}
	if wrong := problem(a.header, append(standing(), headers.RetryAfter)...); wrong != "" {
		d.broken("fields-refused", a, "on a %d %s", a.status, wrong)
	} else {
		d.kept("fields-refused", "all four, each once, on every 429")
	}
	if wrong := wrongType(a); wrong != "" {
		d.broken("refused-type", a, "%s", wrong)
	} else {
		d.kept("refused-type", "%s", a.header.Get("Content-Type"))
	}
	if a.remaining > 0 {
		d.broken("refused-remaining", a, "Remaining is %d on a %d", a.remaining, a.status)
	}
	if wrong := wrongBody(a.body); wrong != "" {
		d.broken("refused-body", a, "%s", wrong)
	} else {
		d.kept("refused-body", "code rate_limited, and a message")
	}
	d.checkWait(a)
}

// wrongType says what is wrong with a 429's type; empty: nothing.
func wrongType(a *answer) string {
	kind := a.header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(kind); err != nil || media != "application/json" {
		return fmt.Sprintf("Content-Type is %.60q", kind)
	}
	return ""
}

// wrongBody says what is wrong with a 429's body; empty: nothing.
func wrongBody(body []byte) string {
	var shape struct {
		Error *struct {
			Code    *string `json:"code"`
			Message *string `json:"message"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(body, &shape); {
	case err != nil:
		return "the body is not the error object, in JSON: " + err.Error()
	case shape.Error == nil:
		return "the body has no object \"error\""
	case shape.Error.Code == nil || *shape.Error.Code != "rate_limited":
		return "error.code is not rate_limited"
	case shape.Error.Message == nil || *shape.Error.Message == "":
		return "error.message is missing or empty"
	}
	return ""
}

// checkWait compares Retry-After with Reset and Date; whether it was enough shows later.
func (d *driver) checkWait(a *answer) {
	if a.retryAfter == absent {
		return
	}
	if a.retryAfter == 0 {
		d.broken("retry-after", a, "Retry-After is 0 on a request that was refused: trying again at once cannot be enough")
		return
	}
	if a.reset == absent || a.date == absent {
		return
	}
	if a.noTime() {
		return // there is nothing to compare it with
	}
	until := a.reset - a.date
	off := a.retryAfter - until
	took := a.at.Sub(a.sent) // Date may have been written so much later
	d.compareClocks(a, off, took)
	switch {
	case off < -1:
		d.suspect("retry-after", a, "Retry-After is %d, and Reset is %d s after Date", a.retryAfter, until)
	case off > ceilSeconds(took):
		d.suspect("retry-after", a, "Retry-After is %d, and Reset is %d s after Date: that is too long", a.retryAfter, until)
	}
}

// noTime reports whether Reset is none that a window could have, such as the seconds until then: it lies further back than the longest
// window is long.
func (a *answer) noTime() bool {
	return a.reset != absent && a.date != absent && a.reset < a.date-int64(weir.MaxPer/time.Second)
}

func ceilSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// checkStanding judges the three fields of an answer that this limiter counted.
func (d *driver) checkStanding(a *answer) {
	d.hearDate(a)
	if !a.complete() {
		return
	}
	lengths := d.lengthsOf(a.limit)
	if len(lengths) == 0 {
		d.broken("limit", a, "X-RateLimit-Limit is %d; the policy has %s", a.limit, d.limitsInWords())
	} else {
		d.kept("limit", "%d on every answer, as the policy has it", a.limit)
	}
	d.checkWindow(a, lengths)
}

// lengthsOf returns the lengths of the limiter's windows that have a limit, for some caller at least.
func (d *driver) lengthsOf(limit int64) []time.Duration {
	l := d.part.limiter
	var lengths []time.Duration
	for i := range l.Windows {
		w := &l.Windows[i]
		if w.Limit == limit || slices.ContainsFunc(l.Overrides, func(o weir.Override) bool { return o.Changes(w) && o.Limit == limit }) {
			lengths = append(lengths, w.Per)
		}
	}
	return lengths
}

func (d *driver) limitsInWords() string {
	text := ""
	for i, w := range d.part.limiter.Windows {
		if i > 0 {
			text += " and "
		}
		text += rateInWords(w)
	}
	if len(d.part.limiter.Overrides) > 0 {
		text += ", and others for some callers"
	}
	return text
}

func (d *driver) checkWindow(a *answer, lengths []time.Duration) {
	if a.remaining > a.limit {
		d.broken("window", a, "Remaining is %d of %d", a.remaining, a.limit)
		return
	}
	if least := d.part.window; a.limit != least.Limit && a.remaining > least.Limit && len(d.part.limiter.Overrides) == 0 {
		d.broken("window", a, "Remaining is %d of %d, and the window of %d per %v has less left: the fields describe the one with the least",
			a.remaining, a.limit, least.Limit, least.Per)
		return
	}
	if a.noTime() {
		d.broken("window", a, "Reset is %d, which is no Unix time of these days", a.reset)
		return
	}
	if len(lengths) == 0 {
		for _, w := range d.part.limiter.Windows {
			lengths = append(lengths, w.Per)
		}
	}
	longest := slices.Max(lengths)
	d.checkOwnWindow(a, longest)
	if a.known != absent && a.reset <= a.known {
		d.suspect("window", a, "Reset is %d, and Date had been %d before the request was sent: a window in the past", a.reset, a.known)
		return
	}
	if a.date == absent {
		d.untested("window", noDate)
		return
	}
	if a.reset-a.date > int64(longest/time.Second)+1 {
		d.suspect("window", a, "Reset is %d s after Date, and the window of %d is %v long", a.reset-a.date, a.limit, longest)
		return
	}
	d.mu.Lock()
	d.longest = max(d.longest, longest)
	d.mu.Unlock()
}
