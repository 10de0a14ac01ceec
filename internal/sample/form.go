package sample

import (
	"encoding/json"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A form is one JSON object of a caller. An endpoint reads each field once, by its exact name and
// with its constraints. The form collects the problems, and done returns all of them. A field that
// is null counts as absent.
type form struct {
	values   map[string]json.RawMessage
	asked    map[string]bool
	problems []string
}

// newForm parses an object from valid JSON. Its error may be sent to the caller.
func newForm(object json.RawMessage) (*form, error) {
	if kind(object) != "an object" {
		return nil, fmt.Errorf("expected an object in braces, this is %s", kind(object))
	}
	values, err := members(object)
	if err != nil {
		return nil, err
	}
	return &form{values: values, asked: map[string]bool{}}, nil
}

// maxNamed is the max number of unknown fields that a message names.
const maxNamed = 5

// done returns every problem, including unknown fields. The object is valid if there is none.
func (f *form) done() []string {
	var unknown []string
	for name := range f.values {
		if !f.asked[name] {
			unknown = append(unknown, show(name))
		}
	}
	sort.Strings(unknown)
	if more := len(unknown) - maxNamed; more > 0 {
		unknown = append(unknown[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	if len(unknown) > 0 {
		known := []string{}
		for name := range f.asked {
			known = append(known, strconv.Quote(name))
		}
		sort.Strings(known)
		allowed := "the object must be empty"
		if len(known) > 0 {
			allowed = "allowed are " + strings.Join(known, ", ")
		}
		f.problem("unknown field %s: %s", strings.Join(unknown, ", "), allowed)
	}
	return f.problems
}

func (f *form) problem(format string, args ...any) {
	f.problems = append(f.problems, fmt.Sprintf(format, args...))
}

// take returns the value of a field, and whether it is present.
func (f *form) take(name string) (json.RawMessage, bool) {
	f.asked[name] = true
	value, ok := f.values[name]
	return value, ok && string(value) != "null"
}

// text returns a string of min to max bytes, which may contain line breaks and tabs. If min is 0 it
// may be absent; otherwise it must contain more than white space.
func (f *form) text(name string, min, max int) string {
	return f.string(name, min, max, func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\n\r\t", r) })
}

// line is text without line breaks.
func (f *form) line(name string, min, max int) string {
	return f.string(name, min, max, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' })
}

func (f *form) string(name string, min, max int, bad func(rune) bool) string {
	want := fmt.Sprintf("expected a string of %d to %d bytes", min, max)
	raw, ok := f.take(name)
	if !ok {
		if min > 0 {
			f.problem("field %q is missing: %s", name, want)
		}
		return ""
	}
	if kind(raw) != "a string" {
		f.problem("field %q is %s: %s", name, kind(raw), want)
		return ""
	}
	s, err := unquote(raw)
	switch at := strings.IndexFunc(s, bad); {
	case err != nil:
		f.problem("field %q %v", name, err)
	case len(s) > max:
		f.problem("field %q has %d bytes: at most %d are allowed", name, len(s), max)
	case len(s) < min || min > 0 && strings.TrimSpace(s) == "":
		f.problem("field %q is empty: %s", name, want)
	case at >= 0:
		r, _ := utf8.DecodeRuneInString(s[at:])
		f.problem("field %q has the control character %U at byte %d: it must not", name, r, at)
	default:
		return s
	}
	return ""
}

// integer returns a whole number from min to max, and whether it is present.
func (f *form) integer(name string, min, max int64) (int64, bool) {
	raw, ok := f.take(name)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < min || n > max {
		f.problem("field %q is %s: expected a whole number from %d to %d", name, show(string(raw)), min, max)
		return 0, false
	}
	return n, true
}

// rfc3339 is the grammar of a time. time.Parse is less strict, but checks the calendar.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// instant returns a time truncated to milliseconds, or zero for an absent field. It refuses leap
// seconds, years of five digits and the rarer spellings of RFC 3339.
func (f *form) instant(name string) time.Time {
	raw, ok := f.take(name)
	if !ok {
		return time.Time{}
	}
	const want = "expected a time from 1970 to 9999 in RFC 3339, with its offset, such as 2026-03-01T09:00:00+01:00"
	if kind(raw) != "a string" {
		f.problem("field %q is %s: %s", name, kind(raw), want)
		return time.Time{}
	}
	s, err := unquote(raw)
	var t time.Time
	if err == nil {
		t, err = time.Parse(time.RFC3339, s)
	}
	if t = t.UTC().Truncate(time.Millisecond); err != nil || !rfc3339.MatchString(s) || t.Year() < 1970 || t.Year() > 9999 {
		f.problem("field %q is %s: %s", name, show(s), want)
		return time.Time{}
	}
	return t
}

// flag returns a boolean, and whether it is present.
func (f *form) flag(name string) (value, ok bool) {
	raw, ok := f.take(name)
	if ok && kind(raw) != "a boolean" {
		f.problem("field %q is %s: expected true or false", name, kind(raw))
		return false, false
	}
	return string(raw) == "true", ok
}

// require adds a problem for a missing field that is not a string, unless the field has a problem
// already.
func (f *form) require(name string, want string) {
	if raw, ok := f.values[name]; !ok || string(raw) == "null" {
		f.problem("field %q is missing: expected %s", name, want)
	}
}

// object returns an object of at most max bytes as compact JSON, or nil for an absent one.
func (f *form) object(name string, max int) json.RawMessage {
	raw, ok := f.take(name)
	if !ok {
		return nil
	}
	if kind(raw) != "an object" {
		f.problem("field %q is %s: expected an object", name, kind(raw))
		return nil
	}
	raw = compact(raw)
	if len(raw) > max {
		f.problem("field %q has %d bytes: at most %d are allowed", name, len(raw), max)
		return nil
	}
	if err := checkNested(raw, 1); err != nil {
		f.problem("field %q: %v", name, err)
		return nil
	}
	return raw
}

// list returns the elements of a list of at most max, or nil if there is a problem.
func (f *form) list(name string, max int) []json.RawMessage {
	want := fmt.Sprintf("expected a list of at most %d objects", max)
	raw, ok := f.take(name)
	if !ok {
		f.problem("field %q is missing: %s", name, want)
		return nil
	}
	if kind(raw) != "a list" {
		f.problem("field %q is %s: %s", name, kind(raw), want)
		return nil
	}
	all := elements(raw, max+1)
	if len(all) > max {
		f.problem("field %q has more than %d elements: send them in several requests", name, max)
		return nil
	}
	return all
}

// show quotes what a caller sent, truncated, for an answer or a log line.
func show(s string) string {
	const most = 64
	if len(s) <= most {
		return strconv.Quote(s)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut] + "…")
}
