package httplimit

import (
	"iter"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/headers"
)

// A Field is one field of a response.
type Field struct{ Name, Value string }

// The fields that are ours in every response that a limiter covers.
const (
	fieldLimit = iota
	fieldRemaining
	fieldReset
	fieldDate
	fieldRetryAfter
	fieldRateLimit // fieldRateLimit and fieldPolicy are ours only where Options.IETF is on
	fieldPolicy
	fieldDenial // ours only where Options.Denial is set
	fieldCount
)

var fieldNames = [fieldCount]string{
	headers.Limit, headers.Remaining, headers.Reset, headers.Date, headers.RetryAfter, headers.RateLimit, headers.Policy,
	headers.Denial,
}

// say writes the values of the binding window (D4), and Date from the clock that decided (D6).
func (m *Middleware) say(a *Answer) {
	d := &a.Decision
	b := &d.Standings()[0]
	var buffer [80]byte // four numbers of 63 bits have 76 digits
	digits := headers.AppendInt(buffer[:0], b.Remaining)
	remaining := len(digits)
	isBrief := b.Window.Per < time.Duration(len(m.resets))*time.Second // then all resets that there can be are remembered
	if !isBrief {
		digits = headers.AppendInt(digits, b.Reset)
	}
	reset := len(digits)
	if a.Outcome == Refused {
		digits = headers.AppendInt(digits, max(d.RetryAfter(), 1))
	}
	all := string(digits) // the one allocation of the values
	v := a.values
	v[fieldLimit], v[fieldRemaining], v[fieldReset] = m.limits.text(b.Limit), all[:remaining], all[remaining:reset]
	if isBrief {
		v[fieldReset] = m.resets.text(b.Reset)
	}
	a.retryAfter = all[reset:]
	v[fieldDate] = m.dates.At(d.Now)
	if m.options.IETF {
		a.sayIETF()
	}
}

// A numberTexts remembers the digits of numbers that come again: a policy's limits, the resets of the next minute. It is safe
// for concurrent use.
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

// sayIETF writes RateLimit-Policy and RateLimit: a member per window (D23).
func (a *Answer) sayIETF() {
	var space [weir.MaxCharges]headers.Member
	members := space[:0]
	standings := a.Decision.Standings()
	for i := range standings {
		s := &standings[i]
		members = append(members, headers.Member{
			Name:      memberName(standings, s),
			Quota:     s.Limit,
			Window:    int64(s.Window.Per.Seconds()),
			Remaining: s.Remaining,
			Reset:     s.Reset - a.Decision.Now,
		})
	}
	var buffer [512]byte
	limits := string(headers.AppendLimits(buffer[:0], members))
	policy := string(headers.AppendPolicy(buffer[:0], members))
	a.ietf = &[...]string{limits, policy} // as fieldRateLimit and fieldPolicy follow each other
}

// memberName is the limiter's, followed by the window's length and key where the limiter has several: the name of a
// window does not depend on which of them binds.
func memberName(standings []weir.Standing, s *weir.Standing) string {
	if len(standings) == 1 {
		return s.Limiter.Name
	}
	return s.Limiter.Name + " " + strconv.FormatInt(int64(s.Window.Per.Seconds()), 10) + "s by " + s.Window.Key.String()
}

// Fields yields the fields of the response, each name once: of an answer of our own all of them, else those that a
// handler's response is sent with. Vary is to be added to what the response has, all others replace it.
func (a *Answer) Fields() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, f := range a.AppendFields(nil) {
			if !yield(f.Name, f.Value) {
				return
			}
		}
	}
}

// AppendFields appends what Fields yields.
func (a *Answer) AppendFields(dst []Field) []Field {
	if a.values == nil || a.Outcome == Unlimited {
		return dst
	}
	for i, v := range a.values {
		dst = append(dst, Field{fieldNames[i], v})
	}
	if a.retryAfter != "" {
		dst = append(dst, Field{headers.RetryAfter, a.retryAfter})
	}
	if a.ietf != nil {
		for i, v := range a.ietf {
			dst = append(dst, Field{fieldNames[fieldRateLimit+i], v})
		}
	}
	if a.denial != "" {
		dst = append(dst, Field{headers.Denial, a.denial})
	}
	if a.refusal != nil {
		dst = append(dst, a.refusal.fields...)
	}
	return dst
}

// Owns reports whether a handler's field of that name, however spelled, gives way to ours (D19): the contract's three,
// Retry-After and Date; with Options.IETF also RateLimit and RateLimit-Policy, with Options.Denial X-Weir-Denial.
func (a *Answer) Owns(name string) bool { return a.owned(name) >= 0 }

// owned returns which of our fields name is, or -1. Most names are told apart by their length.
func (a *Answer) owned(name string) int {
	switch len(name) {
	case len(headers.Date):
		return equal(name, fieldDate)
	case len(headers.RetryAfter):
		return equal(name, fieldRetryAfter)
	case len(headers.Limit): // and Reset
		return max(equal(name, fieldLimit), equal(name, fieldReset))
	case len(headers.Remaining):
		return equal(name, fieldRemaining)
	case len(headers.RateLimit):
		if a.ietf != nil {
			return equal(name, fieldRateLimit)
		}
	case len(headers.Policy):
		if a.ietf != nil {
			return equal(name, fieldPolicy)
		}
	case len(headers.Denial):
		if a.denies {
			return equal(name, fieldDenial)
		}
	}
	return -1
}

func equal(name string, field int) int {
	if strings.EqualFold(name, fieldNames[field]) {
		return field
	}
	return -1
}

// BackendRefused makes a the fields of a 429 that the handler itself answers: Remaining is 0, and Retry-After is its own
// where that is a whole number from 1 on, else the time to Reset (D19). retryAfter holds the lines that it sent.
func (a *Answer) BackendRefused(retryAfter []string) {
	b := &a.Decision.Standings()[0]
	b.Remaining = 0
	a.values[fieldRemaining] = "0"
	if a.ietf != nil {
		a.sayIETF()
	}
	seconds := max(b.Reset-a.Decision.Now, 1)
	if len(retryAfter) == 1 {
		if own, err := headers.ParseInt(headers.RetryAfter, retryAfter[0]); err == nil && own > 0 {
			seconds = own
		}
	}
	a.retryAfter = strconv.FormatInt(seconds, 10)
}
