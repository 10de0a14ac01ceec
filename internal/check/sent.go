package check

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/wire"
)

// A sent is the request of a proxy's client, as the proxy describes it. It implements
// identity.Request. The client's fields came with the question; those in which the proxy describes
// the request are not among them.
type sent struct {
	method, uri, host string
	query             string // raw
	proto             string
	peer              netip.Addr // the client of the proxy

	// The fields of the question, in one of two forms.
	head   *wire.Request       // of HTTP/1; nil: the other
	fields map[string][]string // with canonical names
	values []string            // the results of Header from head, one after another
	// with the canonical names of fields that are not the client's, or differ
	replaced map[string][]string
}

// Peer implements identity.Request: it is the address that connected to the proxy.
func (s *sent) Peer() netip.Addr { return s.peer }

// Header implements identity.Request.
func (s *sent) Header(name string) []string {
	if values, ok := s.replaced[name]; ok {
		return values
	}
	return s.asked(name)
}

// asked returns the values of a field of the question.
func (s *sent) asked(name string) []string {
	if s.head == nil {
		return s.fields[name]
	}
	n := len(s.values)
	if s.values = s.head.AppendValues(s.values, name); len(s.values) == n {
		return nil
	}
	return s.values[n:len(s.values):len(s.values)] // an append to it does not change the next
}

// reset drops the request, and keeps memory for the next one.
func (s *sent) reset() {
	clear(s.values[:cap(s.values)])
	*s = sent{values: s.values[:0]}
}

// Host implements identity.Request.
func (s *sent) Host() string { return s.host }

// RawQuery implements identity.Request.
func (s *sent) RawQuery() string { return s.query }

// Certificate implements identity.Request. Proxies keep the certificates of their clients.
func (s *sent) Certificate() *identity.Certificate { return nil }

// Body implements identity.Request. Questions have none.
func (s *sent) Body(int) []byte { return nil }

func (s *sent) field(name string) string {
	if values := s.Header(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// errForeign means that a question has a field that only another proxy sends.
var errForeign = errors.New("a field of another proxy")

// checkForeign returns an errForeign that names the first field that only another proxy sends.
func (q *questions) checkForeign(s *sent) error {
	for _, name := range q.foreign {
		if len(s.asked(name)) > 0 {
			return fmt.Errorf("%s: %w, which %s does not send", name, errForeign, q.dialect)
		}
	}
	return nil
}

// read reads a question's fields. s has the question's own method, target and host.
func (q *questions) read(s *sent) error {
	if err := q.checkForeign(s); err != nil {
		return err
	}
	for _, one := range [...]struct {
		name string
		to   *string
	}{{q.method, &s.method}, {q.uri, &s.uri}, {q.host, &s.host}} {
		if one.name == "" {
			continue
		}
		value, err := s.only(one.name)
		if err != nil {
			return err
		}
		*one.to = value
	}
	return q.readAddr(s)
}

// readAddr reads the address of the proxy's client.
func (q *questions) readAddr(s *sent) error {
	text, err := s.only(q.addr)
	if err != nil {
		return err
	}
	before := ""
	if q.isList {
		if comma := strings.LastIndexByte(text, ','); comma >= 0 {
			before, text = text[:comma], text[comma+1:]
		}
	}
	if s.peer = identity.ParsePeer(strings.Trim(text, " \t")); !s.peer.IsValid() {
		return fmt.Errorf("%s ends with %.80q, which is no address", q.addr, text)
	}
	if q.isList {
		s.replaced = nil
		if before == "" {
			s.replaced = noForwardedFor
		} else {
			s.replaced = map[string][]string{forwardedFor: {before}}
		}
	}
	return nil
}

// noForwardedFor is the replacement of an X-Forwarded-For with the proxy's client alone. Nothing
// changes it.
var noForwardedFor = map[string][]string{forwardedFor: nil}

// only returns the value of a field of the question that must be there once, with a value.
func (s *sent) only(name string) (string, error) {
	values := s.asked(name)
	switch {
	case len(values) == 0:
		return "", fmt.Errorf("%s is missing", name)
	case len(values) > 1:
		return "", fmt.Errorf("%s comes %d times", name, len(values))
	case values[0] == "":
		return "", fmt.Errorf("%s is empty", name)
	}
	return values[0], nil
}
