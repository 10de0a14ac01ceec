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
	// parameterName is the name of a parameter of a route.
	parameterName
)

// nameForms describes each nameForm: the pattern of its names, and what turns one into its
// canonical form.
var nameForms = [...]struct {
	pattern   string
	canonical func(string) (string, error)
}{
	fieldName:     {`[A-Za-z0-9-]{1,64}`, canonicalField},
	parameterName: {`[a-z][a-z0-9_-]{0,63}`, canonicalParameter},
}

// NamePattern returns a regular expression that matches each name that may follow the colon, and ""
// if the source takes none.
func (s Source) NamePattern() string {
	if s.Field == "" {
		return ""
	}
	return nameForms[s.names].pattern
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
		if builtInSources[i].Name == base {
			form = builtInSources[i].names
		}
	}
	field, err := nameForms[form].canonical(field)
	if err != nil {
		return "", fmt.Errorf("%q: %w", name, err)
	}
	return base + ":" + field, nil
}

// maxField is the longest name of an HTTP field in a key.
const maxField = 64

// connectionFields are fields that are about the connection or the message, that a server reads
// itself, or that a gateway drops. To count by one would count every caller by its address.
var connectionFields = map[string]bool{
	"Connection": true, "Content-Length": true, "Expect": true, "Host": true, "Keep-Alive": true,
	"Proxy-Connection": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// canonicalField returns the canonical form of a field's name: a capital first and after each dash.
func canonicalField(s string) (string, error) {
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
	if connectionFields[string(out)] {
		return "", fmt.Errorf("the field %s is about the connection and names no caller", out)
	}
	return string(out), nil
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
