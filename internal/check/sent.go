package check

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirlimit/weir/identity"
)

// A sent is the request of a proxy's client, as the proxy describes it. It implements
// identity.Request. The client's fields came with the question; those in which the proxy describes
// the request are not among them.
type sent struct {
	method, uri, host string
	query             string // raw
	proto             string
	peer              netip.Addr // the client of the proxy
	fields            map[string][]string
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
	return s.fields[name]
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

// read reads a question's fields. method, target and host are the question's own.
func (q *questions) read(s *sent, fields map[string][]string, method, target, host string) error {
	for _, name := range q.foreign() {
		if len(fields[name]) > 0 {
			return fmt.Errorf("%s: %w, which %s does not send", name, errForeign, q.dialect)
		}
	}
	s.fields, s.method, s.uri, s.host = fields, method, target, host
	for _, one := range [...]struct {
		name string
		to   *string
	}{{q.method, &s.method}, {q.uri, &s.uri}, {q.host, &s.host}} {
		if one.name == "" {
			continue
		}
		value, err := only(fields, one.name)
		if err != nil {
			return err
		}
		*one.to = value
	}
	return q.readAddr(s)
}

// readAddr reads the address of the proxy's client.
func (q *questions) readAddr(s *sent) error {
	text, err := only(s.fields, q.addr)
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

// only returns the value of a field that must be there once, with a value.
func only(fields map[string][]string, name string) (string, error) {
	values := fields[name]
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
