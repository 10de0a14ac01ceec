package rules

import (
	"slices"
	"strings"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/internal/wire"
)

// IsForwarded reports whether a field of a request may be forwarded to a backend. A field that
// Connection names may not, which the engine checks.
func IsForwarded(name string) bool { return !IsHop(name) && !IsFraming(name) && !IsWithheld(name) }

// HopFields belong to one hop alone (RFC 9110, section 7.6.1; RFC 2616, section 13.5.1).
var HopFields = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
}

// FramingFields are those of a request that an engine writes anew, from what it understood.
var FramingFields = []string{"Content-Length", "Expect", "Host"}

var hopLengths, framingLengths = lengthsOf(HopFields), lengthsOf(FramingFields)

// lengthsOf returns a set of bits: the lengths of names, which rule most other names out.
func lengthsOf(names []string) (lengths uint64) {
	for _, name := range names {
		lengths |= 1 << len(name)
	}
	return lengths
}

// IsHop reports whether a field is one of HopFields, in any case.
func IsHop(name string) bool { return isOneOf(HopFields, hopLengths, name) }

// IsFraming reports whether a field of a request is one of FramingFields, in any case.
func IsFraming(name string) bool { return isOneOf(FramingFields, framingLengths, name) }

func isOneOf(names []string, lengths uint64, name string) bool {
	if len(name) > 63 || lengths>>len(name)&1 == 0 {
		return false
	}
	for _, one := range names {
		if wire.EqualFold(one, name) {
			return true
		}
	}
	return false
}

// An AnswerRow is what happens to some fields of answers.
type AnswerRow struct {
	Names []string
	What  string
}

// AnswerRows are the fields of an upstream's answer that are removed, added or rewritten, beside
// HopFields and Content-Length.
var AnswerRows = []AnswerRow{
	{[]string{headers.Limit, headers.Remaining, headers.Reset}, "written instead of the backend's if a limiter covers the request; else the backend's stay, but in trailers and informational answers"},
	{[]string{headers.RetryAfter}, "written with a 429 of Weir's own; the backend's is removed if a limiter covers the request, unless its answer is a 429 of its own"},
	{[]string{headers.Date}, "written from the clock that decided, instead of the backend's, if a limiter covers the request; else the backend's stays"},
	{[]string{headers.RateLimit, headers.Policy}, "with `--ietf-headers` as those above; else the backend's stay"},
	{[]string{headers.Denial}, "added to a 429 of a limiter, and to the 403 of its `deny`"},
	{[]string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Expose-Headers"}, "on the widget surface of the contract: written, removed, and extended by the fields of this table. Under another policy with `--cors-origins` the first is added to an answer without it, and the third is extended"},
	{[]string{"Vary"}, "extended by `Origin`, where Weir writes `Access-Control-Allow-Origin` and `--cors-origins` is not `*`"},
}

// IsReserved reports whether only the limiter may send a field of an answer, in any case, whatever
// covers the request.
func (r *Rules) IsReserved(name string) bool {
	switch {
	case strings.EqualFold(name, headers.Limit), strings.EqualFold(name, headers.Remaining), strings.EqualFold(name, headers.Reset),
		strings.EqualFold(name, headers.RetryAfter), strings.EqualFold(name, headers.Date):
		return true
	case strings.EqualFold(name, headers.RateLimit), strings.EqualFold(name, headers.Policy):
		return r.IETF
	}
	return false
}

// Names reports whether a list with commas names something, in any case.
func Names(list, name string) bool {
	for item := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(item), name) {
			return true
		}
	}
	return false
}

// Fields is the header of an answer. It implements Header. Names are found in any case.
type Fields []answer.Field

// Values implements Header.
func (l *Fields) Values(name string) (values []string) {
	for i := range *l {
		if f := &(*l)[i]; wire.EqualFold(f.Name, name) {
			values = append(values, f.Value)
		}
	}
	return values
}

// Has reports whether there is a field.
func (l *Fields) Has(name string) bool {
	for i := range *l {
		if f := &(*l)[i]; wire.EqualFold(f.Name, name) {
			return true
		}
	}
	return false
}

// Put implements Header.
func (l *Fields) Put(name string, values []string) {
	l.Remove(name)
	for _, v := range values {
		*l = append(*l, answer.Field{Name: name, Value: v})
	}
}

// Remove implements Header.
func (l *Fields) Remove(name string) {
	if !l.Has(name) {
		return
	}
	*l = slices.DeleteFunc(*l, func(f answer.Field) bool { return wire.EqualFold(f.Name, name) })
}
