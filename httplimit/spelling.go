package httplimit

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/target"
)

// coverOf returns what covers a request. It reports whether the path is ambiguous: then the request
// must be answered 400, and is charged to match.
func (m *Middleware) coverOf(r *http.Request) (match weir.Match, ambiguous bool) {
	path := r.URL.Path
	match = target.Match(m.decider, r.Method, r.Host, path)
	if isPlain(path) {
		return match, false
	}
	if hasOddSegment(path) {
		if covered := m.coverOfOdd(r, match); covered.Limiter() != nil {
			return covered, true
		}
	}
	for _, reading := range readings(path) {
		as := target.Match(m.decider, r.Method, r.Host, reading)
		if as.Limiter() == match.Limiter() {
			continue
		}
		if match.Limiter() == nil {
			match = as
		}
		return match, true
	}
	return match, false
}

// odd has the bytes of a decoded path that can lead to another reading of it.
var odd = func() (all [256]bool) {
	for c := range all {
		all[c] = isControl(byte(c)) || strings.IndexByte(".;%?# ", byte(c)) >= 0
	}
	return all
}()

// isPlain reports whether a decoded path has one reading.
func isPlain(path string) bool {
	for i := range len(path) {
		if odd[path[i]] {
			return false
		}
	}
	return true
}

func isControl(c byte) bool { return c < ' ' || c == 0x7f }

// hasOddSegment reports whether a path has a dot segment, with or without parameters, or a segment
// of parameters or blanks alone.
func hasOddSegment(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		name := target.Name(segment)
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
func (m *Middleware) coverOfOdd(r *http.Request, resolved weir.Match) weir.Match {
	if resolved.Limiter() != nil {
		return resolved
	}
	named := strings.ReplaceAll(r.URL.Path, "/;", "/-;")
	if match := m.decider.Match(r.Method, r.Host, named); match.Limiter() != nil {
		return match
	}
	before, _, _ := strings.Cut(named, "/.")
	return m.decider.CatchAll(r.Host, before)
}

// readings returns as what else a handler, or a server behind it, may read a decoded path: decoded
// again, and cut off at a control character.
func readings(path string) (all []string) {
	const maxDecodings = 3
	for n := 0; ; n++ {
		if i := strings.IndexFunc(path, func(c rune) bool { return c < 0x80 && isControl(byte(c)) }); i >= 0 {
			all = append(all, path[:i])
		}
		again, err := url.PathUnescape(path)
		if err != nil || again == path || n == maxDecodings {
			return all
		}
		path = again
		all = append(all, path)
	}
}

func (m *Middleware) refuseAmbiguous(w http.ResponseWriter, r *http.Request) {
	m.writeError(w, r, http.StatusBadRequest, "invalid_request",
		"The request's path can be read in more than one way: it has dot segments, a segment of parameters or blanks alone, a control character, or escapes within escapes. Send it without them.")
}
