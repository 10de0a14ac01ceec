package target

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// A Kind is how a gateway handles a request.
type Kind uint8

const (
	// Plain requests are forwarded upstream if their limiter admits them.
	Plain Kind = iota
	// Asterisk is "OPTIONS *", which concerns the whole server and is not limited.
	Asterisk
	// Health is a health check (/healthz, /readyz), which is not limited.
	Health
	// Unreadable is a path without a canonical form, or one that cannot be forwarded as sent. It is
	// answered 400 and charged to the surface that it was probably meant for (D10: what cannot be
	// read safely is rejected, but still counted).
	Unreadable
	// Preflight is a CORS preflight for a surface, charged to the limiter that counts preflights
	// (D9: preflights never use up a visitor's or a token's budget).
	Preflight
	// AmbiguousQuery is a query that can be read in more than one way for what the limiter counts
	// by: the agent, or a parameter. It is answered 400 and charged to the catch-all of the path
	// (D10).
	AmbiguousQuery
	// UnknownMethod is answered 405 and charged to the limiter that covers the path.
	UnknownMethod
)

// A Surface is one of the contract's two APIs, or neither.
type Surface uint8

const (
	NoSurface Surface = iota
	Widget
	Sync
)

// A Request is the input of Choose.
type Request struct {
	Method  string // as received
	Host    string // the value of its Host field, as received; empty: none
	Path    string // canonical and decoded, or "*" for OPTIONS; unused if Raw is set
	Raw     string // the path as received if it has no canonical form; else empty
	Purpose Purpose

	// Ambiguous is true if the query determines the agent and servers could read it differently
	// (see identity.AgentIsAmbiguous).
	Ambiguous bool

	// Query is the raw query. A limiter may count by its parameters.
	Query string

	// HasNoHealth means that /healthz and /readyz are paths of the backend, counted as any other.
	HasNoHealth bool

	// Methods are those that the gateway accepts beside the known ones (see IsMethod).
	Methods []string

	// Sent is the path as received if it is forwarded so and is not Path (see ReadAsSent); else
	// empty.
	Sent     string
	readings []string // of Sent, other than Path
}

// A Purpose is why a client sends a request.
type Purpose uint8

const (
	// Ordinary is the purpose of nearly all requests.
	Ordinary Purpose = iota
	// CORSPreflight is the purpose of a request that has the headers of a CORS preflight (D9).
	// Choose treats it as a preflight only if its path is on a surface.
	CORSPreflight
)

// Read sets Path from the URL of a request and brings the URL to its canonical form (see Clean), or
// sets Raw if it has none. Method must be set.
func (r *Request) Read(u *url.URL) {
	switch {
	case r.Method == http.MethodOptions && u.Path == "*":
		r.Path = "*"
	case Clean(u) != nil:
		r.Raw = received(u)
	default:
		r.Path = u.Path
	}
}

// A Choice is how a request is handled before it is counted, and which limiter counts it.
type Choice struct {
	Kind    Kind
	Surface Surface
	Match   weir.Match // empty for Asterisk and Health

	// Parameter is the one that AmbiguousQuery is about; empty for the agent.
	Parameter string
}

// Choose decides how a request is handled, for every kind of server. No other function decides in
// which order the rules apply. It overwrites c.
func Choose(d *weir.Decider, r *Request, c *Choice) {
	if r.Raw != "" {
		c.reject(d, r.Host, r.Raw)
		return
	}
	c.Kind, c.Parameter, c.Surface = Plain, "", surfaceOf(d, r.Host, r.Path)
	switch {
	case r.Path == "*":
		c.Kind, c.Match = Asterisk, weir.Match{}
		return
	case c.Surface == NoSurface && !r.HasNoHealth && isHealth(r.Path):
		c.Kind, c.Match = Health, weir.Match{}
		return
	case c.Surface != NoSurface && r.Purpose == CORSPreflight:
		c.Kind, c.Match = Preflight, d.Named(preflightLimiter)
		return
	case !IsMethod(r.Method) && !slices.Contains(r.Methods, r.Method):
		c.Kind = UnknownMethod
	}
	c.Match = match(d, r.Method, r.Host, r.Path)
	if c.Kind == Plain {
		if reading, found := r.otherReading(d, c.Match); found {
			c.reject(d, r.Host, cmp.Or(r.Sent, r.Path))
			if c.Match.Limiter() == nil {
				c.Match = d.CatchAll(r.Host, reading)
			}
			return
		}
	}
	if c.Kind != Plain || !r.Ambiguous && r.Query == "" {
		return
	}
	if name, ok := ambiguous(r, c.Match.Limiter()); ok {
		c.Kind, c.Parameter, c.Match = AmbiguousQuery, name, d.CatchAll(r.Host, r.Path)
	}
}

// Cover returns the match of a request that is served at the path of u as it was sent: nothing
// resolves its dots, which must be none, or decodes it again. It reports whether the path can be
// read in more than one way, of which one leads elsewhere; then m is what the request is charged
// to.
func Cover(d *weir.Decider, method, host string, u *url.URL) (m weir.Match, ambiguous bool) {
	sent := u.EscapedPath()
	if !strings.HasPrefix(sent, "/") { // such as "*"
		return d.Match(method, host, u.Path), false
	}
	r := Request{Method: method, Host: host}
	var err error
	if _, r.Path, err = Decode(sent); err != nil && r.ReadAsSent(sent) != nil {
		m, _ = unreadable(d, host, sent)
		return m, m.Limiter() != nil
	}
	m = match(d, method, host, r.Path)
	reading, found := r.otherReading(d, m)
	if !found {
		return m, false
	}
	if m, _ = unreadable(d, host, sent); m.Limiter() == nil {
		m = d.CatchAll(host, reading)
	}
	return m, m.Limiter() != nil
}

// reject makes c the choice for a path as received that cannot be read in one way.
func (c *Choice) reject(d *weir.Decider, host, raw string) {
	var path string
	c.Kind, c.Parameter = Unreadable, ""
	c.Match, path = unreadable(d, host, raw)
	c.Surface = surfaceOf(d, host, path)
}

// ambiguous reports whether a query can be read in more than one way for what a limiter counts by.
// parameter is empty for the agent. l may be nil.
func ambiguous(r *Request, l *weir.Limiter) (parameter string, found bool) {
	if l == nil {
		return "", false
	}
	for i := range l.Windows {
		if parameter, found = ambiguousFor(r, l.Windows[i].Key); found {
			return parameter, true
		}
	}
	return ambiguousFor(r, l.InFlight.Key)
}

// ambiguousFor is ambiguous for one key.
func ambiguousFor(r *Request, k weir.Key) (parameter string, found bool) {
	for _, part := range k {
		for _, source := range part {
			if source == identity.Agent {
				if r.Ambiguous {
					return "", true
				}
				continue
			}
			name, field := weir.SplitSource(source)
			if name == identity.Query && field != "" && identity.QueryIsAmbiguous(r.Query, field) {
				return field, true
			}
		}
	}
	return "", false
}

func isHealth(path string) bool { return path == "/healthz" || path == "/readyz" }

// surfaceOf returns the surface of a decoded canonical path, in any letter case. If only some
// upstreams would read the path as a surface's, the catch-all route decides. Without HasSurfaces
// there is none.
func surfaceOf(d *weir.Decider, host, path string) Surface {
	s := surface(path)
	if s == NoSurface && strings.IndexByte(path, ';') >= 0 {
		s = surface(d.CatchAll(host, path).Route().Path)
	}
	if s != NoSurface && !HasSurfaces(d) {
		return NoSurface
	}
	return s
}

// HasSurfaces reports whether the policy in force counts preflights, also in mode shadow, as the
// contract's does. Under any other, all paths are those of somebody else's API.
func HasSurfaces(d *weir.Decider) bool { return d.Named(preflightLimiter) != weir.Match{} }

func surface(path string) Surface {
	switch {
	case isUnder(path, "/api/v1/widget"):
		return Widget
	case isUnder(path, "/v1/wp"):
		return Sync
	}
	return NoSurface
}

// isUnder reports whether path is prefix, or continues after it with a new segment, parameters or
// an extension.
func isUnder(path, prefix string) bool {
	if len(path) < len(prefix) || path[:len(prefix)] != prefix && !strings.EqualFold(path[:len(prefix)], prefix) {
		return false
	}
	return len(path) == len(prefix) || strings.IndexByte("/;.", path[len(prefix)]) >= 0
}

// ErrNoTarget means that a string is not a request target. An HTTP server answers it 400 before any
// handler runs.
var ErrNoTarget = errors.New("not a request target")

// Parse parses the target of a request line as net/http does. The error wraps ErrNoTarget.
func Parse(method, target string) (*url.URL, error) {
	authority := method == http.MethodConnect && !strings.HasPrefix(target, "/")
	if authority {
		target = "http://" + target
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, errors.Join(ErrNoTarget, err)
	}
	if authority {
		u.Scheme = ""
	}
	return u, nil
}

// Clean replaces the path of a request's URL by its canonical form (see Canonical). If there is no
// such form, it returns a *PathError and leaves u unchanged.
func Clean(u *url.URL) error {
	if u.Opaque != "" || u.Scheme != "" && (u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return &PathError{Path: u.Opaque, Reason: "is not the path of an http URL"}
	}
	if !IsPlainQuery(u.RawQuery) {
		return &PathError{Path: u.Path, Reason: `has a raw blank or "#" in its query`}
	}
	raw := u.RawPath
	if raw == "" {
		if IsPlain(u.Path) {
			return nil
		}
		raw = u.EscapedPath()
	}
	if IsPlain(raw) {
		return nil
	}
	escaped, decoded, err := Decode(raw)
	if err != nil {
		return err
	}
	u.Path, u.RawPath = decoded, escaped
	return nil
}

// IsPlainQuery reports whether a query contains nothing that could end the request line, or the
// target, for the next server. HTTP/2 permits such bytes.
func IsPlainQuery(query string) bool {
	for i := range len(query) {
		if c := query[i]; c <= ' ' || c == '#' || c == 0x7f {
			return false
		}
	}
	return true
}

// received returns the path as received of a URL without a canonical form. It is never empty.
func received(u *url.URL) string {
	path := u.Opaque
	if path == "" {
		path = u.RawPath
	}
	if path == "" {
		path = u.EscapedPath()
	}
	if path == "" {
		return "/"
	}
	return path
}

// Query returns a raw query as it is sent upstream: byte for byte, except that bytes from 0x80 on
// are percent-encoded (RFC 3986, section 2.1). It copies nothing if there are no such bytes.
func Query(raw string) string {
	n := 0
	for i := range len(raw) {
		if raw[i] >= utf8.RuneSelf {
			n++
		}
	}
	if n == 0 {
		return raw
	}
	b := make([]byte, 0, len(raw)+2*n)
	for i := range len(raw) {
		if c := raw[i]; c < utf8.RuneSelf {
			b = append(b, c)
		} else {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return string(b)
}
