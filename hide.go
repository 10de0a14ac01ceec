package weir

import (
	"net/url"
	"slices"
	"strings"
)

// HideCounted returns path for a log: the value of a parameter that a window of the limiter counts
// by, or one of a limiter in Shadow mode that covers the request too, can be a secret, and
// hide(name, value) is in the place of its segment. value is that of Parameter. path is the path
// that was matched, percent-encoded or not, and is returned as it is if nothing counts by it. If
// its segments are not those that were matched, as with ";parameters", the folded path is returned
// in its place.
func (m Match) HideCounted(path string, hide func(name, value string) string) string {
	path = m.by.hideCounted(path, m.path, hide)
	if m.trials != nil {
		for _, by := range m.trials.shadows {
			path = by.hideCounted(path, m.path, hide)
		}
	}
	return path
}

// hideCounted is HideCounted for one limiter; by may be nil.
func (by *cover) hideCounted(path, folded string, hide func(name, value string) string) string {
	if by == nil || by.route == nil || len(by.limiter.byPath) == 0 {
		return path
	}
	escaped := (&url.URL{Path: folded}).EscapedPath()
	for _, spelling := range [...]string{path, escaped} {
		if out, ok := by.hideIn(spelling, folded, hide); ok {
			return out
		}
	}
	return by.route.Path
}

// hideIn is hideCounted for one spelling. It is false if its segments are not those of the folded
// path.
func (by *cover) hideIn(spelling, folded string, hide func(name, value string) string) (string, bool) {
	segments, pattern, rest := strings.Split(spelling, "/"), by.route.Path, folded
	for i, s := range segments {
		own := foldedSegment(s)
		if own == "" {
			continue
		}
		if rest == "" {
			return "", false
		}
		var declared, matched string
		if matched, rest = cutSegment(rest); matched != own {
			return "", false
		}
		if pattern != "" {
			declared, pattern = cutSegment(pattern)
		}
		if name := strings.Trim(declared, "{}"); name != declared && slices.Contains(by.limiter.byPath, name) {
			value, _ := by.route.parameter(folded, name)
			segments[i] = hide(name, value)
		}
	}
	return strings.Join(segments, "/"), rest == ""
}

// foldedSegment returns what a segment, percent-encoded or not, is in the folded path; "" for one
// that is no part of it.
func foldedSegment(s string) string {
	if decoded, err := url.PathUnescape(s); err == nil {
		s = decoded
	}
	return strings.TrimPrefix(folded("/"+s), "/")
}
