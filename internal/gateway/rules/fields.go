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

// IsHop reports whether a field belongs to one hop alone (RFC 9110, section 7.6.1; RFC 2616,
// section 13.5.1).
func IsHop(name string) bool {
	switch len(name) {
	case 2:
		return strings.EqualFold(name, "Te")
	case 7:
		return strings.EqualFold(name, "Trailer") || strings.EqualFold(name, "Upgrade")
	case 10:
		return strings.EqualFold(name, "Connection") || strings.EqualFold(name, "Keep-Alive")
	case 16:
		return strings.EqualFold(name, "Proxy-Connection")
	case 17:
		return strings.EqualFold(name, "Transfer-Encoding")
	case 18:
		return strings.EqualFold(name, "Proxy-Authenticate")
	case 19:
		return strings.EqualFold(name, "Proxy-Authorization")
	}
	return false
}

// IsFraming reports whether an engine writes a request's field anew, from what it understood.
func IsFraming(name string) bool {
	switch len(name) {
	case 4:
		return strings.EqualFold(name, "Host")
	case 6:
		return strings.EqualFold(name, "Expect")
	case 14:
		return strings.EqualFold(name, "Content-Length")
	}
	return false
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
