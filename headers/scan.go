package headers

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A scanner reads a structured field (RFC 9651) from left to right: lists of items with parameters.
type scanner struct {
	text string
	at   int
}

type itemKind uint8

const (
	noItem itemKind = iota
	integerItem
	stringItem
	otherItem // any other bare item, of which only the syntax matters
)

type item struct {
	kind   itemKind
	number int64
	text   string // the content of a string; of any other item, as received
}

func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0 // no rule below accepts a NUL
}

// take moves past the bytes that ok accepts and returns them.
func (s *scanner) take(ok func(byte) bool) string {
	start := s.at
	for s.at < len(s.text) && ok(s.text[s.at]) {
		s.at++
	}
	return s.text[start:s.at]
}

// comma moves to the next member, if there is one.
func (s *scanner) comma() (more bool, err error) {
	blank := func(c byte) bool { return c == ' ' || c == '\t' }
	s.take(blank)
	if s.at == len(s.text) {
		return false, nil
	}
	if s.peek() != ',' {
		return false, fmt.Errorf("%q follows where only a comma is allowed", s.text[s.at])
	}
	s.at++
	s.take(blank)
	if s.at == len(s.text) {
		return false, errors.New("it ends with a comma")
	}
	return true, nil
}

// parameters reads the parameters of an item. If one occurs twice, the last is used (RFC 9651,
// section
// 4.2.3.2).
func (s *scanner) parameters() (parameters, error) {
	var p parameters
	for s.peek() == ';' {
		s.at++
		s.take(func(c byte) bool { return c == ' ' })
		if c := s.peek(); c != '*' && (c < 'a' || c > 'z') {
			return p, errors.New("a parameter has no name, which begins with a small letter")
		}
		name := s.take(func(c byte) bool {
			return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("_-.*", c) >= 0
		})
		value := item{kind: otherItem, text: "?1"} // a name alone is the boolean true
		if s.peek() == '=' {
			s.at++
			var err error
			if value, err = s.bareItem(); err != nil {
				return p, err
			}
		}
		if to := p.named(name); to != nil {
			*to = value
		}
	}
	return p, nil
}

func (s *scanner) bareItem() (item, error) {
	start := s.at
	spelled := func(err error) (item, error) { return item{kind: otherItem, text: s.text[start:s.at]}, err }
	switch c := s.peek(); {
	case c == '"':
		text, err := s.quoted()
		return item{kind: stringItem, text: text}, err
	case c == '-' || isDigit(c):
		return s.number()
	case c == '*' || isLetter(c):
		s.take(func(c byte) bool {
			return isLetter(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
		})
		return spelled(nil)
	case c == ':':
		return spelled(s.bytes())
	case c == '?':
		s.at++
		if c := s.peek(); c != '0' && c != '1' {
			return spelled(errors.New("a boolean is ?0 or ?1"))
		}
		s.at++
		return spelled(nil)
	case c == '@':
		s.at++
		if n, err := s.number(); err != nil || n.kind != integerItem {
			return spelled(errors.New("a date is @ and a whole number of seconds"))
		}
		return spelled(nil)
	case c == '%':
		return spelled(s.displayString())
	}
	if s.at == len(s.text) {
		return item{}, errors.New("it ends where a value is required")
	}
	return item{}, fmt.Errorf("%q does not begin a value", s.text[s.at])
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// number reads an integer of up to 15 digits, or a decimal of up to 12 and 3.
func (s *scanner) number() (item, error) {
	start := s.at
	if s.peek() == '-' {
		s.at++
	}
	whole := s.take(isDigit)
	if s.peek() == '.' && whole != "" {
		s.at++
		if fraction := s.take(isDigit); len(whole) > 12 || fraction == "" || len(fraction) > 3 {
			return item{}, fmt.Errorf("%s is not a decimal", shown(s.text[start:s.at]))
		}
		return item{kind: otherItem, text: s.text[start:s.at]}, nil
	}
	if whole == "" || len(whole) > 15 {
		return item{}, fmt.Errorf("%s is not a whole number of up to 15 digits", shown(s.text[start:s.at]))
	}
	n, err := strconv.ParseInt(s.text[start:s.at], 10, 64)
	return item{kind: integerItem, number: n, text: s.text[start:s.at]}, err
}

// quoted reads a string: printable ASCII. A backslash escapes a quote or a backslash, and nothing
// else.
func (s *scanner) quoted() (string, error) {
	s.at++
	var b strings.Builder
	for s.at < len(s.text) {
		c := s.text[s.at]
		s.at++
		switch {
		case c == '"':
			return b.String(), nil
		case c < ' ' || c > '~':
			return "", fmt.Errorf("a string contains %q: only printable ASCII is allowed", c)
		case c == '\\':
			if c = s.peek(); c != '"' && c != '\\' {
				return "", errors.New(`a backslash in a string must precede " or \`)
			}
			s.at++
		}
		b.WriteByte(c)
	}
	return "", errors.New("a string has no end")
}

func (s *scanner) bytes() error {
	s.at++
	encoded := s.take(func(c byte) bool { return isLetter(c) || isDigit(c) || strings.IndexByte("+/=", c) >= 0 })
	if s.peek() != ':' {
		return errors.New("a byte sequence has no end")
	}
	s.at++
	if _, err := base64.StdEncoding.DecodeString(encoded); err != nil {
		if _, err := base64.RawStdEncoding.DecodeString(encoded); err != nil {
			return errors.New("a byte sequence is not base64")
		}
	}
	return nil
}

// displayString reads up to the end of the string. Its content is not used.
func (s *scanner) displayString() error {
	s.at++
	if s.peek() != '"' {
		return errors.New(`a display string begins with %"`)
	}
	s.at++
	s.take(func(c byte) bool { return c != '"' && c >= ' ' && c <= '~' })
	if s.peek() != '"' {
		return errors.New("a display string has no end")
	}
	s.at++
	return nil
}
