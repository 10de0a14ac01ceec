package answer

import (
	"iter"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/headers"
)

// A Field is one header field of a response.
type Field struct{ Name, Value string }

// Names are the fields that every limited response has, in the order of Answer.Values. The answer
// to a denied caller has none of them.
var Names = [fieldCount]string{headers.Limit, headers.Remaining, headers.Reset, headers.Date}

// The indexes of Names.
const (
	fieldLimit = iota
	fieldRemaining
	fieldReset
	fieldDate
	fieldCount
)

// setFields sets the values of the binding window (D4), and Date from the clock that decided (D6).
func (j *Judge) setFields(a *Answer) {
	a.unset = nil
	d := &a.Decision
	b := &d.Standings()[0]
	var buffer [80]byte // four numbers of 63 bits have 76 digits
	digits := headers.AppendInt(buffer[:0], b.Remaining)
	remaining := len(digits)
	wait, ends := d.RetryAfter(), b.Reset
	if a.soon {
		wait, ends = 1, d.Now+1
	}
	// the resets of a short window fit into the cache, all of them
	isBrief := b.Window.Per < time.Duration(len(j.resets))*time.Second
	if !isBrief {
		digits = headers.AppendInt(digits, ends)
	}
	reset := len(digits)
	if a.Outcome == Refused {
		digits = headers.AppendInt(digits, max(wait, 1))
	}
	all := string(digits) // the only allocation for the values
	v := &a.values
	v[fieldLimit], v[fieldRemaining], v[fieldReset] = j.limits.text(b.Limit), all[:remaining], all[remaining:reset]
	if isBrief {
		v[fieldReset] = j.resets.text(ends)
	}
	a.retryAfter = all[reset:]
	v[fieldDate] = j.dates.At(d.Now)
	if j.options.IETF {
		a.setIETF()
	}
}

// A numberTexts caches the digits of numbers that recur: the limits of a policy, the resets of the
// next minute. It is safe for concurrent use.
type numberTexts [64]atomic.Pointer[numberText]

type numberText struct {
	number int64
	text   string
}

func (t *numberTexts) text(number int64) string {
	slot := &t[uint64(number)%uint64(len(t))]
	if n := slot.Load(); n != nil && n.number == number {
		return n.text
	}
	n := &numberText{number, strconv.FormatInt(number, 10)}
	slot.Store(n)
	return n.text
}

// setIETF sets the values of RateLimit and RateLimit-Policy, with a member for each window (D23).
func (a *Answer) setIETF() {
	var space [weir.MaxCharges]headers.Member
	members := space[:0]
	standings := a.Decision.Standings()
	for i := range standings {
		s := &standings[i]
		reset := s.Reset - a.Decision.Now
		if a.soon && s.Refused {
			reset = 1
		}
		members = append(members, headers.Member{
			Name:       memberName(standings, s),
			Quota:      s.Limit,
			Window:     memberLength(s.Window),
			Remaining:  s.Remaining,
			Reset:      reset,
			Concurrent: s.InFlight,
		})
	}
	var buffer [512]byte
	a.ietf[0] = string(headers.AppendLimits(buffer[:0], members))
	a.ietf[1] = string(headers.AppendPolicy(buffer[:0], members))
}

// AddIETF adds RateLimit and RateLimit-Policy to the fields, as Options.IETF does, unless the
// answer has no window to describe. It is for an answer inside or around one that has them, since
// the fields of a response describe one of the two.
func (a *Answer) AddIETF() {
	if a.Values()[fieldLimit] != "" && a.ietf[0] == "" {
		a.setIETF()
	}
}

// memberLength returns the length of a window in seconds, or 0 for a calendar's: its spans differ,
// and a policy's parameters describe all of them.
func memberLength(w *weir.Window) int64 {
	if w.Calendar.Unit != 0 {
		return 0
	}
	return int64(w.Per.Seconds())
}

// memberName returns the name of the limiter, followed by the window's length and key if the
// limiter has several windows. So the name of a window does not depend on which window binds.
func memberName(standings []weir.Standing, s *weir.Standing) string {
	if len(standings) == 1 {
		return s.Limiter.Name
	}
	return s.Limiter.Name + " " + s.Window.Label()
}

// Fields yields the fields of the response, each name once. If Status is not 0 these are all of its
// fields, else those to add to the handler's response. Each replaces what the response has under
// its name, except for Vary, which is added.
func (a *Answer) Fields() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, f := range a.AppendFields(nil) {
			if !yield(f.Name, f.Value) {
				return
			}
		}
	}
}

// AppendFields appends to dst what Fields yields: Names and their Values, then the others. It
// appends nothing if no limiter covers the request, and only the others if the caller is denied.
func (a *Answer) AppendFields(dst []Field) []Field {
	if values := a.Values(); values[fieldLimit] != "" {
		for i := range values {
			dst = append(dst, Field{Names[i], values[i]})
		}
	}
	return a.AppendOthers(dst)
}

// Values returns the values of Names. The first is empty if the answer has none of them: no limiter
// covers the request, or the caller is denied. With
// AppendOthers it is AppendFields for a door that copies nothing needlessly. The array is a's own.
func (a *Answer) Values() *[fieldCount]string {
	a.set()
	return &a.values
}

// set sets the fields of an answer that waits for Head, if they are asked for before it.
func (a *Answer) set() {
	if a.unset != nil {
		a.unset.setFields(a)
	}
}

// AppendOthers appends to dst the fields that are not in Names. An admitted request usually has
// none.
func (a *Answer) AppendOthers(dst []Field) []Field {
	a.set()
	if a.retryAfter != "" {
		dst = append(dst, Field{headers.RetryAfter, a.retryAfter})
	}
	if a.ietf[0] != "" {
		dst = append(dst, Field{headers.RateLimit, a.ietf[0]}, Field{headers.Policy, a.ietf[1]})
	}
	if a.denial != "" {
		dst = append(dst, Field{headers.Denial, a.denial})
	}
	if a.refusal != nil {
		dst = append(dst, a.refusal.fields...)
	}
	if a.challenge != "" {
		dst = append(dst, Field{"WWW-Authenticate", a.challenge})
	}
	return dst
}

// Owns reports whether a field that a handler sets is dropped in favor of the answer's own (D19),
// in any spelling of its name: the contract's three, Retry-After and Date; with Options.IETF also
// RateLimit and RateLimit-Policy, and with Options.Denial also X-Weir-Denial.
func (a *Answer) Owns(name string) bool {
	switch len(name) { // rules out nearly every other name
	case len(headers.Date):
		return name == headers.Date || strings.EqualFold(name, headers.Date)
	case len(headers.RetryAfter):
		return strings.EqualFold(name, headers.RetryAfter)
	case len(headers.Limit): // Reset has the same length
		return strings.EqualFold(name, headers.Limit) || strings.EqualFold(name, headers.Reset)
	case len(headers.Remaining):
		return strings.EqualFold(name, headers.Remaining)
	case len(headers.RateLimit):
		return strings.EqualFold(name, headers.RateLimit) && a.hasIETF()
	case len(headers.Policy):
		return strings.EqualFold(name, headers.Policy) && a.hasIETF()
	case len(headers.Denial):
		return a.denies && strings.EqualFold(name, headers.Denial)
	}
	return false
}

func (a *Answer) hasIETF() bool {
	a.set()
	return a.ietf[0] != ""
}

// BackendRefused sets the fields for a 429 that the handler itself sends: Remaining is 0, and
// Retry-After is the handler's own if that is a whole number of at least 1, else the time to Reset
// (D19). retryAfter are the lines of that field in the handler's response.
func (a *Answer) BackendRefused(retryAfter []string) {
	a.set()
	b := &a.Decision.Standings()[0]
	b.Remaining = 0
	a.values[fieldRemaining] = "0"
	if a.ietf[0] != "" {
		a.setIETF()
	}
	seconds := max(b.Reset-a.Decision.Now, 1)
	if len(retryAfter) == 1 {
		if own, err := headers.ParseInt(headers.RetryAfter, retryAfter[0]); err == nil && own > 0 {
			seconds = own
		}
	}
	a.retryAfter = strconv.FormatInt(seconds, 10)
}
