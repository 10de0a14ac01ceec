package weir

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A nameForm is how the name after the colon of a key source is spelled. Each form accepts only
// names in which "+", blanks and quotes have no place, so that a key can be read.
type nameForm uint8

const (
	// fieldName is the name of an HTTP field, in any case of letters (RFC 9110, section 5.1).
	fieldName nameForm = iota
	// segmentName is the name of a parameter of a route.
	segmentName
	// cookieName is the name of a cookie in exact case, a token (RFC 6265, section 4.1.1) without
	// "+" and quotes.
	cookieName
	// parameterName is the name of a query parameter in exact case, of characters that no URL has
	// to escape (RFC 3986, section 2.3).
	parameterName
	// claimName is the name of a claim in exact case. Dots lead into objects: org.id. It may be a
	// URL, as names of private claims are (RFC 7519, section 4.2).
	claimName
)

// nameForms describes each nameForm: the pattern of its names, an example, and what turns one into
// its canonical form.
var nameForms = [...]struct {
	pattern, example string
	canonical        func(string) (string, error)
}{
	fieldName:     {`[A-Za-z0-9-]{1,64}`, "X-Api-Key", canonicalField},
	segmentName:   {`[a-z][a-z0-9_-]{0,63}`, "tenant", canonicalParameter},
	cookieName:    {`[A-Za-z0-9!#$%&*.^_|~-]{1,64}`, "session_id", exactName("a cookie's name", "cookie:session_id", "!#$%&*.^_|~-")},
	parameterName: {`[A-Za-z0-9._~-]{1,64}`, "tenant", exactName("a parameter's name", "query:tenant", "._~-")},
	claimName:     {`[A-Za-z0-9!#$%&*./:?@_~-]{1,64}`, "org.id", exactName("a claim's name", "claim:org.id", "!#$%&*./:?@_~-")},
}

// NamePattern returns a regular expression that matches each name that may follow the colon, and ""
// if the source takes none.
func (s Source) NamePattern() string {
	if s.Field == "" {
		return ""
	}
	return nameForms[s.names].pattern
}

// Example returns a valid name of the source in a Part, such as "header:X-Api-Key".
func (s Source) Example() string {
	if s.Field == "" {
		return s.Name
	}
	return s.Name + ":" + nameForms[s.names].example
}

// canonicalSource returns a source as a Part holds it, with the name after the colon in canonical
// form, so that one field has one budget however a policy spells it. It returns an error for a name
// that cannot be a key source.
func canonicalSource(name string) (string, error) {
	base, field, ok := strings.Cut(name, ":")
	if !isName(base) {
		return "", fmt.Errorf("%q is not a valid name of a key source (lower-case letters, digits, dashes)", name)
	}
	if !ok {
		return name, nil
	}
	form := fieldName
	for i := range builtInSources {
		if s := &builtInSources[i]; s.Name == base && s.Field == "" {
			return name, nil // it is unknown, whatever follows the colon
		} else if s.Name == base {
			form = s.names
		}
	}
	field, err := nameForms[form].canonical(field)
	if err != nil {
		return "", fmt.Errorf("%q: %w", name, err)
	}
	return base + ":" + field, nil
}

// maxField is the longest name after the colon of a key source.
const maxField = 64

// connectionFields are fields that are about the connection or the message, that a server reads
// itself, or that a gateway drops. To count by one would count every caller by its address.
var connectionFields = map[string]bool{
	"Connection": true, "Content-Length": true, "Expect": true, "Host": true, "Keep-Alive": true,
	"Proxy-Connection": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// canonicalField returns the canonical form of the name of a field that callers can be counted by.
func canonicalField(s string) (string, error) {
	name, err := spelledField(s)
	if err == nil && connectionFields[name] {
		return "", fmt.Errorf("the field %s is about the connection and names no caller", name)
	}
	return name, err
}

// spelledField returns the canonical form of a field's name: a capital first and after each dash.
func spelledField(s string) (string, error) {
	if s == "" || len(s) > maxField {
		return "", fmt.Errorf("a field's name has 1 to %d characters, as in header:X-Api-Key", maxField)
	}
	out := []byte(s)
	start := true
	for i, c := range out {
		switch {
		case 'a' <= c && c <= 'z' && start:
			out[i] = c - 'a' + 'A'
		case 'A' <= c && c <= 'Z' && !start:
			out[i] = c - 'A' + 'a'
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-':
		default:
			r, _ := utf8.DecodeRuneInString(s[i:])
			return "", fmt.Errorf("a field's name has letters, digits and dashes, as in header:X-Api-Key, and not %q", r)
		}
		start = c == '-'
	}
	return string(out), nil
}

// exactName returns the canonical function of names that are spelled in one way alone: letters,
// digits and marks. what and example are for the error.
func exactName(what, example, marks string) func(string) (string, error) {
	return func(s string) (string, error) {
		if s == "" || len(s) > maxField {
			return "", fmt.Errorf("%s has 1 to %d characters, as in %s", what, maxField, example)
		}
		for i, c := range []byte(s) {
			switch {
			case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte(marks, c) >= 0:
			default:
				r, _ := utf8.DecodeRuneInString(s[i:])
				return "", fmt.Errorf("%s has letters, digits and %s, as in %s, and not %q", what, marks, example, r)
			}
		}
		return s, nil
	}
}

// isName reports whether s can name a key source, or a limiter.
func isName(s string) bool {
	if s == "" || len(s) > 64 || s == "or" {
		return false
	}
	for i, c := range []byte(s) {
		lower := 'a' <= c && c <= 'z'
		if !lower && (i == 0 || !('0' <= c && c <= '9' || c == '-')) {
			return false
		}
	}
	return true
}
