package accesslog

import (
	"bytes"
	"slices"
)

// A clfShape is one of the formats that begin like the common log format.
type clfShape uint8

const (
	common   clfShape = iota // peer ident user [time] "request" status size
	combined                 // the same, "referrer" "user agent", and anything after these
	vhost                    // a virtual host, then combined
	traefik                  // combined, request number "router" "server" 12ms
)

// clfFields are the names of the values in lines of these shapes.
var clfFields = []string{"remote_addr", "remote_user", "time_local", "request", "status", "body_bytes_sent",
	"http_referer", "http_user_agent", "http_x_forwarded_for", "server_name"}

// A clf parses lines of one of these shapes, from the opening quote of the request in both
// directions. The text before it cannot contain an unescaped quote, but a user's name may contain
// spaces and brackets.
type clf struct {
	shape  clfShape
	clock  clock
	fields []int // index in clfFields for each of Options.Fields, or -1
}

func newCLF(shape clfShape, fields []string) *clf {
	c := &clf{shape: shape}
	for _, name := range fields {
		c.fields = append(c.fields, slices.Index(clfFields, name))
	}
	return c
}

func (c *clf) has(field string) bool {
	at := slices.Index(clfFields, field)
	switch field {
	case "http_referer", "http_user_agent":
		return c.shape != common
	case "http_x_forwarded_for":
		return c.shape == combined || c.shape == vhost // some servers append it
	case "server_name":
		return c.shape == vhost
	}
	return at >= 0
}

// parts are the values of one line, with their escapes.
type parts struct {
	host, peer, user, stamp, request, status, size, referrer, agent, rest []byte

	millis []byte // that it took; nil in most formats
}

func (c *clf) parse(b []byte, r *record) error {
	var p parts
	if err := c.split(b, &p); err != nil {
		return err
	}
	at, ok := c.clock.common(p.stamp)
	if !ok {
		return wrong("time", p.stamp, "is not a valid time, such as 10/Oct/2000:13:55:36 -0700")
	}
	status, err := parseStatus(p.status)
	if err != nil {
		return err
	}
	if !isNumber(p.size) && string(p.size) != "-" {
		return wrong("size", p.size, "is not a number")
	}
	if c.fields != nil {
		c.extra(&p, r)
	}
	r.Time, r.Peer, r.Status = at, p.peer, status
	r.Host = given(unescape(p.host))
	r.Method, r.Target = requestLine(unescape(p.request))
	r.Target = r.origin(r.Target)
	if c.shape != traefik { // Traefik escapes nothing
		p.agent = unescape(p.agent)
	}
	r.took(inMilliseconds(p.millis))
	r.UserAgent, r.HasAgent = given(p.agent), c.shape != common
	return nil
}

// split splits a line into its parts.
func (c *clf) split(b []byte, p *parts) error {
	quote := requestQuote(b)
	if quote < 0 {
		if bytes.IndexByte(b, '[') < 0 {
			return errorString("no time in brackets")
		}
		return errorString("no request in quotes after a time in brackets")
	}
	p.stamp = b[quote-28 : quote-2]
	if err := c.head(b[:quote-30], p); err != nil {
		return err
	}
	rest := b[quote+1:]
	end := quoteEnd(rest)
	if end < 0 {
		return errorString("the request has no closing quote")
	}
	p.request, rest = rest[:end], rest[end+1:]
	if p.status, rest = word(rest); p.status == nil {
		return errorString("no status after the request")
	}
	if p.size, rest = word(rest); p.size == nil {
		return errorString("no size after the status")
	}
	if c.shape == common {
		if len(rest) > 0 {
			return errorString("more after the size than the common format has")
		}
		return nil
	}
	if c.shape == traefik {
		return traefikEnd(rest, p)
	}
	if p.referrer, rest = quoted(rest); p.referrer == nil {
		return errorString("no referrer in quotes after the size")
	}
	if p.agent, p.rest = quoted(rest); p.agent == nil {
		return errorString("no user agent in quotes after the referrer")
	}
	return nil
}

// requestQuote returns the index of the quote that opens the request: the first after a time in
// brackets. It returns -1 if there is none.
func requestQuote(b []byte) int {
	for from := 0; ; {
		i := bytes.IndexByte(b[from:], '"')
		if i < 0 {
			return -1
		}
		i += from
		if i >= 30 && b[i-1] == ' ' && b[i-2] == ']' && b[i-29] == '[' && b[i-30] == ' ' {
			return i
		}
		from = i + 1
	}
}

// head parses the part of the line before the time.
func (c *clf) head(b []byte, p *parts) error {
	if c.shape == vhost {
		blank := bytes.IndexByte(b, ' ')
		if blank <= 0 {
			return errorString("no virtual host and address before the time")
		}
		p.host, b = b[:blank], b[blank+1:]
	}
	if c.shape == traefik {
		// Traefik writes X-Forwarded-For here. It may be a list, of which Traefik's direct peer has
		// added the last address.
		if dash := bytes.Index(b, []byte(" - ")); dash >= 0 {
			b = b[bytes.LastIndexByte(b[:dash], ' ')+1:]
		}
	}
	blank := bytes.IndexByte(b, ' ')
	if blank <= 0 {
		return errorString("no address, identity and user before the time")
	}
	p.peer = b[:blank]
	if c.shape == vhost && !looksLikeAddress(p.peer) {
		return wrong("the text after the virtual host,", p.peer, "is not an address")
	}
	b = b[blank+1:]
	if blank = bytes.IndexByte(b, ' '); blank <= 0 {
		return errorString("no identity and user after the address")
	}
	p.user = b[blank+1:]
	return nil
}

// looksLikeAddress distinguishes an address from a name and from "-", without parsing it.
func looksLikeAddress(b []byte) bool {
	separators := 0
	for _, c := range b {
		switch {
		case c == '.' || c == ':':
			separators++
		case hex([]byte{c}, 1) < 0:
			return false
		}
	}
	return separators >= 2
}

// traefikEnd parses ` "referrer" "user agent" 17 "router" "server" 3ms` from its end, because
// Traefik writes the first two unescaped, with any quotes.
func traefikEnd(b []byte, p *parts) error {
	const missing = errorString("no referrer, user agent, number, router, server and duration after the size")
	took := bytes.LastIndexByte(b, ' ')
	millis, ok := bytes.CutSuffix(b[max(took, 0):], []byte("ms"))
	if !ok || took < 0 || !isNumber(millis[1:]) {
		return missing
	}
	for range 2 {
		b = bytes.TrimSuffix(b[:took], []byte(`"`))
		if took = bytes.LastIndex(b, []byte(` "`)); took < 0 {
			return missing
		}
	}
	b = b[:took]
	number := bytes.LastIndexByte(b, ' ')
	if number < 0 || !isNumber(b[number+1:]) && string(b[number+1:]) != "-" {
		return missing
	}
	b = b[:number]
	between := bytes.Index(b, []byte(`" "`))
	if between < 2 || b[0] != ' ' || b[1] != '"' || b[len(b)-1] != '"' || between+3 > len(b)-1 {
		return missing
	}
	p.referrer, p.agent, p.millis = b[2:between], b[between+3:len(b)-1], millis[1:]
	return nil
}

// word returns the text after a space, up to the next one, or nil if there is none.
func word(b []byte) (value, rest []byte) {
	if len(b) < 2 || b[0] != ' ' || b[1] == ' ' {
		return nil, b
	}
	end := bytes.IndexByte(b[1:], ' ')
	if end < 0 {
		return b[1:], nil
	}
	return b[1 : end+1], b[end+1:]
}

// quoted returns the text in quotes after a space, or nil if there is none.
func quoted(b []byte) (value, rest []byte) {
	if len(b) < 3 || b[0] != ' ' || b[1] != '"' {
		return nil, b
	}
	end := quoteEnd(b[2:])
	if end < 0 {
		return nil, b
	}
	return b[2 : end+2 : end+2], b[end+3:]
}

func (c *clf) extra(p *parts, r *record) {
	for i, which := range c.fields {
		var value []byte
		switch which {
		case 0:
			value = p.peer
		case 1:
			value = p.user
		case 2:
			value = p.stamp
		case 3:
			value = p.request
		case 4:
			value = p.status
		case 5:
			value = p.size
		case 6:
			value = p.referrer
		case 7:
			value = p.agent
		case 8:
			value, _ = quoted(p.rest)
		case 9:
			value = p.host
		}
		r.extra[i] = given(unescape(r.own(value)))
	}
}

// parseStatus reads three digits. "-" and "0", which servers write for a request without an answer,
// give 0.
func parseStatus(b []byte) (int, error) {
	if len(b) == 3 && isDigit(b[0]) && isDigit(b[1]) && isDigit(b[2]) {
		return int(b[0]-'0')*100 + int(b[1]-'0')*10 + int(b[2]-'0'), nil
	}
	if len(b) == 1 && (b[0] == '-' || b[0] == '0') {
		return 0, nil
	}
	return 0, wrong("status", b, "is not a number of three digits")
}

func isNumber(b []byte) bool {
	for _, c := range b {
		if !isDigit(c) {
			return false
		}
	}
	return len(b) > 0
}
