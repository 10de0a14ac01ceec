package weir

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

var units = []struct {
	name string
	per  time.Duration
}{
	{"day", 24 * time.Hour},
	{"hour", time.Hour},
	{"minute", time.Minute},
	{"second", time.Second},
}

const windowForm = "a window is LIMIT [requests] per [N] UNIT by KEY, such as: 30 per minute by session or ip"

// ParseWindow parses a window as a policy spells it: LIMIT [requests] per [N] UNIT by KEY. UNIT is
// second, minute, hour or day, singular or plural. A calendar window is spelled as Calendar.String.
func ParseWindow(s string) (Window, error) {
	head, by, found := strings.Cut(s, " by ")
	if !found {
		return Window{}, fmt.Errorf("window %q: %s%s", s, windowForm, windowHint(s))
	}
	limit, span, err := parseRate(head, windowForm)
	if err != nil {
		return Window{}, fmt.Errorf("window %q: %w", s, err)
	}
	key, err := ParseKey(by)
	if err != nil {
		if areWindows(s) {
			err = errors.New("these are several windows: write each as a text of its own, without the comma")
		}
		return Window{}, fmt.Errorf("window %q: %w", s, err)
	}
	return Window{Limit: limit, Per: span.per, Calendar: span.calendar, Key: key, Requests: span.requests}, nil
}

// areWindows reports whether s is several windows with commas between them.
func areWindows(s string) bool {
	all := strings.Split(s, ",")
	return len(all) > 1 && !slices.ContainsFunc(all, func(one string) bool {
		_, err := ParseWindow(one)
		return err != nil
	})
}

// windowHint returns what is wrong with a window without " by ", if that is plain.
func windowHint(s string) string {
	if _, _, err := parseRate(s, windowForm); err == nil {
		return `; "by KEY" is missing`
	}
	if lower := strings.ToLower(s); lower != s {
		if _, err := ParseWindow(lower); err == nil {
			return "; its words are in lower case"
		}
	}
	return ""
}

// A windowSpan is what follows "per" in a window.
type windowSpan struct {
	per      time.Duration
	calendar Calendar
	requests bool // the limit is a number of requests, not of units
}

// hasPlace reports whether a zone or a day is named.
func (s windowSpan) hasPlace() bool { return s.calendar != Calendar{Unit: s.calendar.Unit} }

// parseRate parses LIMIT [requests] per [N] UNIT, or LIMIT [requests] per calendar UNIT and what
// follows. form is the right form, for error messages.
func parseRate(s, form string) (limit int64, span windowSpan, err error) {
	words := strings.Fields(s)
	if len(words) > 1 && (words[1] == "requests" || words[1] == "request") {
		words, span.requests = slices.Delete(words, 1, 2), true
	}
	if len(words) < 3 || words[1] != "per" {
		return 0, windowSpan{}, errors.New(form)
	}
	if limit, err = parseCount(words[0]); err != nil {
		return 0, windowSpan{}, fmt.Errorf("limit %q %w", words[0], err)
	}
	if words[2] == calendarWord {
		span.calendar, err = parseCalendar(words[3:])
		span.per = span.calendar.Unit.length()
	} else {
		span.per, err = parseLength(words[2:], form)
	}
	return limit, span, err
}

// parseLength parses [N] UNIT.
func parseLength(words []string, form string) (time.Duration, error) {
	if len(words) > 2 {
		return 0, errors.New(form)
	}
	n := int64(1)
	if len(words) == 2 {
		var err error
		if n, err = parseCount(words[0]); err != nil {
			return 0, fmt.Errorf("number of units %q %w", words[0], err)
		}
	}
	unit, err := parseUnit(words[len(words)-1])
	if err != nil {
		return 0, err
	}
	if n > int64(MaxPer/unit) {
		return 0, fmt.Errorf("%d %s is longer than the longest window, 31 days", n, words[len(words)-1])
	}
	return time.Duration(n) * unit, nil
}

func parseCount(s string) (int64, error) {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("is not a whole number from 1 to %d", MaxLimit)
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || n > MaxLimit {
		return 0, fmt.Errorf("is out of range: a whole number from 1 to %d is allowed", MaxLimit)
	}
	return n, nil
}

func parseUnit(s string) (time.Duration, error) {
	for _, u := range units {
		if s == u.name || s == u.name+"s" {
			return u.per, nil
		}
	}
	return 0, fmt.Errorf("unit %q is unknown: second, minute, hour and day are allowed", s)
}

// String returns the window as a policy spells it, with the largest unit that divides its length.
func (w Window) String() string {
	switch {
	case w.InFlight:
		return fmt.Sprintf("%d in flight by %v", w.Limit, w.Key)
	case w.Requests:
		return ofRequests(rate(w.Limit, w.Per, w.Calendar)) + " by " + w.Key.String()
	}
	return rate(w.Limit, w.Per, w.Calendar) + " by " + w.Key.String()
}

// Label names the window without its limit: "60s by ip", or "calendar month by token". Metrics and
// headers name it so, and go on under that name if the limit changes.
func (w *Window) Label() string {
	by := " by " + w.Key.String()
	switch {
	case w.InFlight:
		return "in flight" + by
	case w.Requests:
		by = " requests" + by
	}
	if w.Calendar.Unit != 0 {
		return w.Calendar.String() + by
	}
	return strconv.FormatInt(int64(w.Per/time.Second), 10) + "s" + by
}

// ofRequests returns a rate with the word that makes it one of requests.
func ofRequests(rate string) string { return strings.Replace(rate, " per ", " requests per ", 1) }

// rate returns a limit and a length as a policy spells them, with the largest unit that divides the
// length.
func rate(limit int64, per time.Duration, c Calendar) string {
	if c != (Calendar{}) {
		return fmt.Sprintf("%d per %v", limit, c)
	}
	for _, u := range units {
		if n := per / u.per; per > 0 && per%u.per == 0 {
			if n == 1 {
				return fmt.Sprintf("%d per %s", limit, u.name)
			}
			return fmt.Sprintf("%d per %d %ss", limit, n, u.name)
		}
	}
	return fmt.Sprintf("%d per %v", limit, per)
}

// ParseFailureMode parses a FailureMode as a policy spells it: local, allow or deny, each also
// after "pocket or", as in "pocket or deny". "pocket" alone is that.
func ParseFailureMode(s string) (FailureMode, error) {
	if s == "pocket" {
		return FailPocket | FailDeny, nil
	}
	for _, m := range FailureModes() {
		if s == m.String() {
			return m, nil
		}
	}
	return 0, fmt.Errorf("on_store_failure %q is unknown: %s", s, failureModesAllowed)
}

const failureModesAllowed = `local, allow and deny are allowed, also after "pocket or"`

// A Route covers requests for one path, or for all paths with a prefix, with one method or any. A
// segment of its path can be a parameter, such as {tenant}, which covers any one segment that is
// not empty.
type Route struct {
	Method string // empty: any
	// Host is the host of the requests that it covers, as AppendHost returns it (D33): a name, an
	// address, or *.example.com for all names that end in .example.com. Empty: any.
	Host   string
	Path   string // begins with a slash; without the star
	Prefix bool   // it covers every path that begins with Path
}

const routeForm = "a route is [METHOD] [HOST]/path, or [METHOD] [HOST]/path* for everything that begins so"

// ParseRoute parses a route as a policy spells it: an optional method, an optional host, and a path
// that may end in a star. A host without a dot, other than localhost, is spelled with one at its
// end: api./items.
func ParseRoute(s string) (Route, error) {
	words := strings.Fields(s)
	var r Route
	switch len(words) {
	case 1:
		r.Path = words[0]
	case 2:
		r.Method, r.Path = words[0], words[1]
	default:
		return Route{}, fmt.Errorf("route %q: %s", s, routeForm)
	}
	if before, _, ok := strings.Cut(r.Path, "://"); ok && !strings.Contains(before, "/") {
		return Route{}, fmt.Errorf("route %q: %q is a URL: write it without %s:// and without a port", s, r.Path, before)
	}
	r.Host, r.Path = cutHost(r.Path)
	r.Path, r.Prefix = strings.CutSuffix(r.Path, "*")
	if err := r.problem(); err != nil {
		return Route{}, fmt.Errorf("route %q: %w", s, err)
	}
	return r, nil
}

func (r Route) problem() error {
	for _, c := range []byte(r.Method) {
		if c < 'A' || c > 'Z' {
			return fmt.Errorf("method %q is not in capital letters (methods are case-sensitive: GET, POST)", r.Method)
		}
	}
	if err := r.hostProblem(); err != nil {
		return err
	}
	if !strings.HasPrefix(r.Path, "/") {
		before, after, ok := strings.Cut(r.Path, "/")
		if ok && before == "*" {
			return fmt.Errorf("path %q does not begin with a slash; leave the star out: a route without a host is for all hosts: /%s", r.Path, after)
		}
		if ok && before != "" {
			return fmt.Errorf("path %q does not begin with a slash; if %q is a host, write a dot after it: %s./%s", r.Path, before, before, after)
		}
		return fmt.Errorf("path %q does not begin with a slash; %s", r.Path, routeForm)
	}
	if strings.Contains(r.Path, "*") {
		return errors.New("a star is allowed at the end of the path only")
	}
	if i := strings.IndexAny(r.Path, "?#%\\;"); i >= 0 {
		return fmt.Errorf("path %q holds %q: write the decoded path, without query, fragment or parameters", r.Path, r.Path[i])
	}
	for _, c := range r.Path {
		if unicode.IsSpace(c) || unicode.IsControl(c) || c == utf8.RuneError {
			return fmt.Errorf("path %q holds a blank, a control character or invalid UTF-8", r.Path)
		}
	}
	if strings.Contains(r.Path, "//") || strings.Contains(r.Path+"/", "/./") || strings.Contains(r.Path+"/", "/../") {
		return fmt.Errorf("path %q has an empty or a dot segment, which no canonical path has", r.Path)
	}
	return r.parameterProblem()
}

// String returns the route as a policy spells it.
func (r Route) String() string {
	s := r.Path
	if r.Host != "" && (strings.ContainsAny(r.Host, ".:") || r.Host == "localhost") {
		s = r.Host + s
	} else if r.Host != "" {
		s = r.Host + "." + s
	}
	if r.Prefix {
		s += "*"
	}
	if r.Method != "" {
		s = r.Method + " " + s
	}
	return s
}
