package replay

import (
	"bytes"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unsafe"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/accesslog"
)

// A caller is the sender of a line's request: identity's Caller over the line, and the credentials
// and own sources in the log's fields. It is weir.Keys and weir.Addresser.
type caller struct {
	identity.Caller
	sources *sources
	peers   *peers
	known   *peer // the present address's place in peers; nil: not looked up yet, or it has none
	line    *accesslog.Line
	query   string
	// values of header fields: the agent's, the forwarded address's, the User-Agent
	lines [3][1]string
	peer  []byte // buffer for an address with a port
	// the sources that the present request was asked for and lacks, by their place in sources.all
	lacks    uint64
	seen     uint64     // the sources that any request had a field for
	requires string     // the credential that the present limiter requires; empty: none
	public   bool       // the server itself answers the request, which needs no credential
	rejected bool       // the present decision admits the request, and it is answered 401
	match    weir.Match // of the present limiter
}

// sources map key sources to fields of the log.
type sources struct {
	// The address, the agent, then every other source that a limiter counts by.
	all        []string
	rows       []weir.Source // for each, its row in the table of sources
	mapped     []int         // for each, the field that holds it; -1: none
	alike      []uint64      // for each, the places of the sources in the same field
	parameters []string      // the names of the query parameters that a limiter counts by
	forwarded  int           // the field that holds the header field by; -1: none
	by         string        // the header field that trusted proxies write
	trusted    []netip.Prefix
}

// The places of two sources in sources.all.
const (
	placeIP = iota
	placeAgent
)

// maxSources is how many sources policies may count by.
const maxSources = 64

// newSources collects the sources that the policies count by.
func newSources(o *Options) *sources {
	s := &sources{all: []string{identity.IP, identity.Agent}, forwarded: o.Forwarded, by: http.CanonicalHeaderKey(o.ClientIPHeader), trusted: o.TrustedProxies}
	if s.by == "" {
		s.by = "X-Forwarded-For"
	}
	policies := []weir.Policy{o.Policy}
	if o.Against != nil {
		policies = append(policies, *o.Against)
	}
	note := func(source string) {
		if !isInLog(source) || slices.Contains(s.all, source) {
			return
		}
		s.all = append(s.all, source)
		if name, field := weir.SplitSource(source); name == identity.Query && field != "" {
			s.parameters = append(s.parameters, field)
		}
	}
	for _, p := range policies {
		for i := range p.Limiters {
			l := &p.Limiters[i]
			for _, w := range l.Rows() {
				for _, part := range w.Key {
					for _, source := range part {
						note(source)
					}
				}
			}
			if l.Requires != "" {
				note(l.Requires)
			}
			if namesTokens(l) {
				note(identity.Token)
			}
			if len(l.Plans.List) > 0 {
				note(PlanKey)
			}
		}
	}
	for _, source := range s.all {
		s.rows = append(s.rows, weir.SourceOf(source))
		field, ok := o.Keys[source]
		if !ok {
			field = -1
		}
		s.mapped = append(s.mapped, field)
	}
	for _, field := range s.mapped {
		var same uint64
		for place, other := range s.mapped {
			if other == field {
				same |= 1 << place
			}
		}
		s.alike = append(s.alike, same)
	}
	if s.mapped[placeIP] >= 0 { // an address from a field needs no trusted proxy
		s.trusted, s.forwarded = nil, -1
	}
	return s
}

// isInLog reports whether a field of the log can hold a source. All callers have the common ones,
// and the parameters of a route are in the path.
func isInLog(source string) bool {
	name, _ := weir.SplitSource(source)
	return weir.SourceOf(source).Kind != weir.Common && name != identity.Path
}

// namesTokens reports whether a limiter has a rule for single tokens.
func namesTokens(l *weir.Limiter) bool {
	isToken := func(w weir.Who) bool { return w.Token != "" }
	return slices.ContainsFunc(l.Exempt, isToken) || slices.ContainsFunc(l.Deny, isToken) ||
		slices.ContainsFunc(l.Overrides, func(o weir.Override) bool { return o.For.Token != "" })
}

// namesAgent reports whether a line has the field that names the agent.
func (s *sources) namesAgent(l *accesslog.Line) bool {
	field := s.mapped[placeAgent]
	return field >= 0 && len(l.Field(field)) > 0
}

// start makes c the caller of a line.
func (c *caller) start(r *identity.Resolver, l *accesslog.Line, query string) {
	c.line, c.query, c.lacks, c.known = l, query, 0, nil
	r.Start(&c.Caller, c)
}

// AppendKey implements weir.Keys.
func (c *caller) AppendKey(dst []byte, source string) (value []byte, ok bool) {
	place := slices.Index(c.sources.all, source)
	switch place {
	case -1:
		if name, parameter := weir.SplitSource(source); name == identity.Path {
			v, ok := c.match.Parameter(parameter)
			return append(dst, v...), ok
		}
		return dst, weir.SourceOf(source).Kind == weir.Common && !c.Lacks(c.requires)
	case placeIP:
		if len(c.sources.trusted) == 0 {
			return c.appendPeer(dst)
		}
		if !c.has(placeIP, c.sources.forwarded) && c.trusts(c.Addr()) {
			c.lacks |= 1 << placeIP
		}
		return c.Caller.AppendKey(dst, source)
	case placeAgent:
		if c.line.Agent != nil {
			c.seen |= 1 << placeAgent
		} else if !c.has(placeAgent, c.sources.mapped[placeAgent]) {
			if v, ok := identity.QueryValue(c.query, "agent_id"); !ok || v == "" {
				c.lacks |= 1 << placeAgent
			}
		}
		return c.Caller.AppendKey(dst, source)
	}
	field := c.sources.mapped[place]
	if field < 0 && source == identity.Host && len(c.line.Host) > 0 {
		c.seen |= 1 << place
		return c.Caller.AppendKey(dst, source)
	}
	if field < 0 && c.sources.rows[place].Name == identity.Query { // every line has its query
		c.seen |= 1 << place
		return c.Caller.AppendKey(dst, source)
	}
	if field >= 0 {
		if v := c.line.Field(field); len(v) > 0 {
			c.seen |= c.sources.alike[place]
			if v = counted(&c.sources.rows[place], v); len(v) > 0 {
				return append(dst, v...), true
			}
		}
	}
	c.lacks |= 1 << place
	return dst, false
}

// asks sets the limiter that is about to count the request, and how it covers the request.
func (c *caller) asks(m weir.Match) {
	c.match, c.requires = m, ""
	if l := m.Limiter(); l != nil {
		c.requires = l.Requires
	}
}

// Lacks implements weir.Credentialed, as far as the log shows it. If no field of the log holds such
// credentials, no request is known to lack one.
func (c *caller) Lacks(credential string) bool {
	if credential == "" || c.public {
		return false
	}
	place := slices.Index(c.sources.all, credential)
	field := c.sources.mapped[place]
	if field < 0 {
		c.lacks |= 1 << place
		return false
	}
	return len(counted(&c.sources.rows[place], c.line.Field(field))) == 0
}

// has reports whether the line has a field, and records that the log has the source at place. A
// field of -1 is none.
func (c *caller) has(place, field int) bool {
	if field < 0 || len(c.line.Field(field)) == 0 {
		return false
	}
	c.seen |= 1 << place
	return true
}

// appendPeer appends the counted form of an address when no proxy is trusted, so that it depends
// only on the logged address.
func (c *caller) appendPeer(dst []byte) (value []byte, ok bool) {
	if c.known == nil {
		at, hash, known := c.peers.find(c.logged())
		if !known {
			start := len(dst)
			if dst, ok = c.Caller.AppendKey(dst, identity.IP); ok {
				at.keep(hash, dst[start:])
				c.known = at
			}
			return dst, ok
		}
		c.known = at
	}
	return append(dst, c.known.key[:c.known.size]...), true
}

func (c *caller) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(c.sources.trusted, func(p netip.Prefix) bool { return p.Contains(a) })
}

// counted returns the counted form of a field that holds a source: of a source with a name after
// the colon the value without the blanks around it, of a host and a cookie its one form, of an API
// token its public id, as in a policy. It drops the scheme of an Authorization field.
func counted(row *weir.Source, v []byte) []byte {
	switch {
	case row.Name == identity.Host:
		host, _ := weir.AppendHost(nil, text(v))
		return host
	case row.Name == identity.Cookie:
		value, _ := identity.CookieValue(text(v))
		return []byte(value)
	case row.Field != "":
		return bytes.Trim(v, " \t")
	case row.Kind != weir.Credential:
		return v
	}
	const scheme = "Bearer "
	if len(v) >= len(scheme) && strings.EqualFold(text(v[:len(scheme)]), scheme) {
		v = v[len(scheme):]
	}
	rest, isToken := strings.CutPrefix(text(v), "wpt_")
	switch {
	case !isToken:
		return v
	case row.Name == identity.Session: // the same field may hold either
		return nil
	}
	if i := strings.IndexByte(rest, '_'); i >= 0 {
		rest = rest[:i]
	}
	return v[len("wpt_") : len("wpt_")+len(rest)]
}

// Peer implements identity.Request. An address without a port, which logs have and connections do
// not, gets one: identity takes five times as long to find that the port is missing as to read the
// address.
func (c *caller) Peer() netip.Addr { return identity.ParsePeer(c.peerText()) }

func (c *caller) peerText() string {
	peer := c.logged()
	colons := 0
	for _, b := range peer {
		switch {
		case b == ':':
			colons++
		case '0' <= b && b <= '9', b == '.', 'a' <= b && b <= 'f', 'A' <= b && b <= 'F':
		default:
			return text(peer)
		}
	}
	switch colons {
	case 0:
		c.peer = append(append(c.peer[:0], peer...), ":0"...)
	case 1: // it has one
		return text(peer)
	default:
		c.peer = append(append(append(c.peer[:0], '['), peer...), "]:0"...)
	}
	return text(c.peer)
}

// logged returns the text in the place of the address.
func (c *caller) logged() []byte {
	if field := c.sources.mapped[placeIP]; field >= 0 {
		return c.line.Field(field)
	}
	return c.line.Peer
}

// Header implements identity.Request. The result is valid until the same field of the next line is
// requested.
func (c *caller) Header(name string) []string {
	switch name {
	case "X-Agent-Id":
		if lines := c.field(0, c.sources.mapped[placeAgent]); lines != nil || c.line.Agent == nil {
			return lines
		}
		c.lines[0][0] = text(c.line.Agent)
		return c.lines[0][:]
	case "User-Agent":
		if c.line.UserAgent == nil {
			return nil
		}
		c.lines[2][0] = text(c.line.UserAgent)
		return c.lines[2][:]
	case c.sources.by:
		return c.field(1, c.sources.forwarded)
	}
	return nil
}

func (c *caller) field(place, index int) []string {
	if index < 0 {
		return nil
	}
	v := c.line.Field(index)
	if v == nil {
		return nil
	}
	c.lines[place][0] = text(v)
	return c.lines[place][:]
}

// Host implements identity.Request. A field that a key source maps to is read in its place.
func (c *caller) Host() string { return text(c.line.Host) }

// RawQuery implements identity.Request.
func (c *caller) RawQuery() string { return c.query }

// Certificate implements identity.Request: a log shows none that was verified here.
func (c *caller) Certificate() *identity.Certificate { return nil }

// Body implements identity.Request: a log has none.
func (c *caller) Body(int) []byte { return nil }

// text returns bytes of a line as a string without copying, which matters at a million lines a
// second. It is valid as long as the line, so what is kept of it must be copied.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
