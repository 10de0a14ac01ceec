package accesslog

import (
	"bytes"
	"fmt"
	"slices"
)

// pairKeys are the keys of a request in Weir's text format.
var pairKeys = []string{"time", "client", "method", "path", "status", "bytes", "duration", "limiter", "outcome", "host", "proto", "aborted", "agent", "reserved", "cost", "overrun",
	"user_agent", "upstream", "upstream_time", "request_id", "traceparent", "denial", "caller"}

// messageKeys are the keys of lines that are not requests.
var messageKeys = []string{"level", "msg", "lines"}

// pairs parses lines of Weir's text format: key=value, with quotes around a value that needs them.
type pairs struct {
	clock  clock
	fields []int // index in pairKeys for each of Options.Fields, or -1
	own    ownLines

	values  [23][]byte // by pairKeys
	message [3][]byte  // by messageKeys
}

func newPairs(fields []string) *pairs {
	p := &pairs{}
	for _, name := range fields {
		p.fields = append(p.fields, slices.Index(pairKeys, name))
	}
	return p
}

func (p *pairs) has(field string) bool { return slices.Contains(pairKeys, field) }

func (p *pairs) parse(b []byte, r *record) error {
	if p.own.banner(b) {
		return &ownLine{}
	}
	if err := p.split(b); err != nil {
		return err
	}
	// A message may have the keys of a request, such as method=, but no request is without
	// outcome=.
	if p.values[8] == nil && p.message[0] != nil && p.message[1] != nil {
		return newOwnLine(p.message[1], p.message[2])
	}
	for i, name := range pairKeys[:5] {
		if p.values[i] == nil {
			return fmt.Errorf("not a request: it has no %s=", name)
		}
	}
	at, ok := p.clock.iso(p.values[0])
	if !ok {
		return wrong("time", p.values[0], "is not a valid time, such as 2000-10-10T13:55:36.123Z")
	}
	status, err := parseStatus(p.values[4])
	if err != nil {
		return err
	}
	for i, which := range p.fields {
		if which >= 0 {
			r.extra[i] = given(unescapeBytes(r.own(p.values[which])))
		}
	}
	r.Time, r.Status, r.Peer = at, status, p.values[1]
	if millis, ok := bytes.CutSuffix(p.values[6], []byte("ms")); ok {
		r.took(inMilliseconds(millis))
	}
	r.Reserved, r.Cost = unitsOf(p.values[13]), p.values[14]
	r.Agent, r.HasAgent = p.values[12], p.values[12] != nil
	r.Host = given(unescapeBytes(p.values[9]))
	if method, target := unescapeBytes(p.values[2]), unescapeBytes(p.values[3]); isMethod(method) && len(target) > 0 {
		r.Method, r.Target = method, target
	}
	return nil
}

// split splits a line into the values of its keys. In a request, no key may occur twice.
func (p *pairs) split(b []byte) error {
	clear(p.values[:])
	clear(p.message[:])
	twice := ""
	for len(b) > 0 {
		equals := bytes.IndexByte(b, '=')
		if equals <= 0 {
			return wrong("no key= at", b[:min(len(b), 20)], "")
		}
		key, value := b[:equals], b[equals+1:]
		if len(value) > 0 && value[0] == '"' {
			end := quoteEnd(value[1:])
			if end < 0 {
				return wrong("the value of", key, "has no closing quote")
			}
			b, value = value[end+2:], value[1:end+1]
		} else {
			end := bytes.IndexByte(value, ' ')
			if end < 0 {
				end = len(value)
			}
			b, value = value[end:], value[:end]
		}
		if len(b) > 0 {
			if b[0] != ' ' {
				return wrong("no blank after the value of", key, "")
			}
			b = b[1:]
		}
		for i, name := range messageKeys {
			if string(key) == name {
				p.message[i] = value
			}
		}
		for i, name := range pairKeys {
			if string(key) != name {
				continue
			}
			if p.values[i] != nil {
				twice = name
			}
			p.values[i] = value
		}
	}
	if twice != "" && p.message[0] == nil {
		return fmt.Errorf("%s= occurs twice", twice)
	}
	return nil
}

// unitsOf reads a number of units in Weir's log; 0 if it is none.
func unitsOf(b []byte) int64 {
	if !isNumber(b) {
		return 0
	}
	n, _ := decimal(b, 1)
	return n
}

// unescapeBytes removes, in place, the escapes with which Weir's log writes bytes: \u00C3 is the
// byte C3.
func unescapeBytes(b []byte) []byte {
	first := bytes.IndexByte(b, '\\')
	if first < 0 {
		return b
	}
	out := b[:first]
	for i := first; i < len(b); {
		switch {
		case b[i] == '\\' && i+1 < len(b) && (b[i+1] == '"' || b[i+1] == '\\'):
			out = append(out, b[i+1])
			i += 2
		case b[i] == '\\' && i+6 <= len(b) && b[i+1] == 'u' && hex(b[i+2:], 4) >= 0 && hex(b[i+2:], 4) <= 0xff:
			out = append(out, byte(hex(b[i+2:], 4)))
			i += 6
		default:
			out = append(out, b[i])
			i++
		}
	}
	return out
}
