package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// A limiterNames value is a list of limiters. Its flag is repeatable.
type limiterNames []string

func (n *limiterNames) Set(value string) error {
	for name := range strings.SplitSeq(value, ",") {
		if name = strings.TrimSpace(name); name == "" {
			return errors.New("expected the name of a limiter, or several with commas between them")
		}
		if !slices.Contains(*n, name) {
			*n = append(*n, name)
		}
	}
	return nil
}

func (n *limiterNames) String() string { return strings.Join(*n, ",") }
func (n *limiterNames) Type() string   { return "NAME,..." }

// A secrets value is a list of credentials, separated by spaces or commas, that are never shown.
// Its flag is repeatable.
type secrets []string

func (s *secrets) Set(value string) error {
	all := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r' })
	if len(all) == 0 {
		return errors.New("expected a token, or several with blanks between them")
	}
	for _, one := range all {
		if len(one) > 16<<10 || strings.ContainsFunc(one, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return errors.New("expected tokens of printable ASCII, of at most 16 KiB each")
		}
		if !slices.Contains(*s, one) {
			*s = append(*s, one)
		}
	}
	return nil
}

func (s *secrets) String() string       { return "" }
func (s *secrets) Type() string         { return "TOKEN" }
func (s *secrets) Redact(string) string { return "…" }

// A fields value is a list of header fields, one per line. Its flag is repeatable. The fields'
// values may be secret, so they are never shown.
type fields http.Header

// notSent are the fields that the connection itself writes.
var notSent = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Te", "Trailer", "Expect"}

func (f *fields) Set(value string) error {
	for line := range strings.SplitSeq(strings.TrimSpace(value), "\n") {
		name, value, found := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if !found || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return errors.New("expected a field such as 'X-Api-Version: 2'")
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		if slices.Contains(notSent, name) {
			return fmt.Errorf("%s is written by the connection itself", name)
		}
		if *f == nil {
			*f = fields{}
		}
		http.Header(*f).Add(name, value)
	}
	return nil
}

func (f *fields) String() string { return "" }
func (f *fields) Type() string   { return "'NAME: VALUE'" }

// Redact returns only the field's name.
func (f *fields) Redact(value string) string {
	name, _, found := strings.Cut(value, ":")
	if !found || !httpguts.ValidHeaderFieldName(name) {
		return "…"
	}
	return name + ": …"
}
