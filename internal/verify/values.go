package verify

import (
	"net/url"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
)

// freshValue returns a new, unique value of a source that callers choose. All of them are spelled
// alike in every place, and in the form that servers count them by.
func freshValue(source string) string {
	if source == sourceHost {
		return freshAgent() + ".example.com"
	}
	return freshAgent()
}

// freshSegments returns a value for each parameter of routes that a limiter counts by, by source.
func freshSegments(l *weir.Limiter) map[string]string {
	segments := make(map[string]string)
	for _, name := range namesIn(l, sourcePath) {
		source := sourcePath + ":" + name
		segments[source] = freshValue(source)
	}
	return segments
}

// madeUp returns the sources that a limiter counts by and whose values were not given: the verifier
// makes them up.
func (o *Options) madeUp(l *weir.Limiter) []string {
	return slices.DeleteFunc(sourcesOf(l), func(source string) bool { return !hasValue(source) || o.givenValue(source) != "" })
}

// givenValue returns the value of a source that Options.Header has, or "".
func (o *Options) givenValue(source string) string {
	switch name, field := weir.SplitSource(source); name {
	case sourceHeader:
		return o.Header.Get(field)
	case sourceCookie:
		for pair := range strings.SplitSeq(o.cookies(), ";") {
			if before, value, ok := strings.Cut(pair, "="); ok && strings.TrimSpace(before) == field {
				return strings.TrimSpace(value)
			}
		}
	}
	return ""
}

// cookies returns the given cookies, as one line.
func (o *Options) cookies() string { return strings.Join(o.Header.Values("Cookie"), "; ") }

// choosing returns a request with the caller's value of a source.
func (c caller) choosing(r request, o *Options, source string) request {
	value := c.chosen[source]
	switch name, field := weir.SplitSource(source); name {
	case sourceHeader:
		return r.with(field, value)
	case sourceCookie:
		before := r.fields["Cookie"]
		if before == "" {
			before = o.cookies()
		}
		return r.with("Cookie", joined(withoutCookie(before, field), "; ", field+"="+value))
	case sourceQuery:
		r.query = joined(r.query, "&", field+"="+url.QueryEscape(value))
	case sourceHost:
		r.host = value
	case sourcePath:
		r.path = withSegment(r.path, c.segments[source], value)
	}
	return r
}

// withoutCookie returns a line of cookies without those of a name.
func withoutCookie(line, name string) string {
	var kept []string
	for pair := range strings.SplitSeq(line, ";") {
		pair = strings.TrimSpace(pair)
		if before, _, _ := strings.Cut(pair, "="); pair != "" && strings.TrimSpace(before) != name {
			kept = append(kept, pair)
		}
	}
	return strings.Join(kept, "; ")
}

// withSegment returns a path with one made-up segment replaced. What replaces it may be several
// segments, or a part of one.
func withSegment(path, segment, value string) string {
	return strings.Replace(path, "/"+segment, "/"+value, 1)
}
