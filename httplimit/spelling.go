package httplimit

import (
	"net/http"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/target"
)

// coverOf returns what covers a request. It reports whether the path is ambiguous: then the request
// must be answered 400, and is charged to match.
func (m *Middleware) coverOf(r *http.Request) (match weir.Match, ambiguous bool) {
	if r.URL.RawPath == "" && target.IsPlainAsSent(r.URL.Path) {
		return m.decider.Match(r.Method, r.Host, r.URL.Path), false
	}
	if hasOddSegment(r.URL.Path) {
		match = m.coverOfOdd(r)
		return match, match.Limiter() != nil
	}
	return target.Cover(m.decider, r.Method, r.Host, r.URL)
}

// hasOddSegment reports whether a path has a dot segment, with or without parameters, or a segment
// of parameters alone.
func hasOddSegment(path string) bool {
	for segment := range strings.SplitSeq(strings.ReplaceAll(path, `\`, "/"), "/") {
		name, _, _ := strings.Cut(segment, ";")
		if name == "." || name == ".." || name == "" && segment != "" {
			return true
		}
	}
	return false
}

// coverOfOdd returns the limiter that a path with odd segments is charged to: the one that covers
// the resolved path, or else the path as it is. Some handlers resolve such a path (http.ServeMux
// redirects) and some do not (http.StripPrefix), and some take parameters alone for a name, so only
// a 400 is sure to count it correctly (D10).
func (m *Middleware) coverOfOdd(r *http.Request) weir.Match {
	if resolved := m.decider.Match(r.Method, r.Host, r.URL.Path); resolved.Limiter() != nil {
		return resolved
	}
	named := strings.ReplaceAll(strings.ReplaceAll(r.URL.Path, `\`, "/"), "/;", "/-;")
	if match := m.decider.Match(r.Method, r.Host, named); match.Limiter() != nil {
		return match
	}
	before, _, _ := strings.Cut(named, "/.")
	return m.decider.CatchAll(r.Host, before)
}

func (m *Middleware) refuseAmbiguous(w http.ResponseWriter, r *http.Request) {
	m.writeError(w, r, http.StatusBadRequest, "invalid_request",
		"The request's path can be read in more than one way: it has dot segments, a segment of parameters or blanks alone, an escaped slash, a backslash, a control character, or escapes within escapes. Send it without them.")
}
