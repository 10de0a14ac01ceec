package target

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// A Kind says how a gateway takes a request.
type Kind uint8

const (
	// Plain requests go to the backend, once their limiter admits them.
	Plain Kind = iota
	// Asterisk is OPTIONS for the server as a whole, which is outside all limits.
	Asterisk
	// Health is asked by load balancers, outside all limits.
	Health
	// Unreadable is a path with no single safe reading: 400, on the account of the surface it was probably meant for (D10).
	Unreadable
	// Preflight is a browser that asks for leave, on the account of what counts preflights (D9).
	Preflight
	// AmbiguousAgent is a query that names an agent in more than one way, before a limiter that counts by agents: 400, on the account of
	// what covers the path at last (D10).
	AmbiguousAgent
	// UnknownMethod is 405, on the account of what covers the path.
	UnknownMethod
)

// A Surface is one of the contract's two.
type Surface uint8

const (
	NoSurface Surface = iota
	Widget
	Sync
)

// A Request is what a Choice is made by.
type Request struct {
	Method string  // as received
	Path   string  // canonical and decoded, or "*" of OPTIONS; not used where Raw is set
	Raw    string  // the path as it came, where it has no canonical form; else empty
	Asks   Purpose // what for

	// Ambiguous says that the query decides what the agent is, and that readers differ about it (identity.AgentIsAmbiguous).
	Ambiguous bool
}

// A Purpose is what a request is sent for.
type Purpose uint8

const (
	// ForItself is nearly every request.
	ForItself Purpose = iota
	// ForLeave is one that carries what makes it a CORS preflight (D9); only on a surface does it count as one.
	ForLeave
)

// Read takes the path from the URL of a request, which is clean then (see Clean) unless Raw says otherwise.
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

// A Choice is what becomes of a request before it is counted, and what counts it.
type Choice struct {
	Kind    Kind
	Surface Surface
	Match   weir.Match // covers nothing for Asterisk and Health
}

// Choose makes the choice for every door: the one place that knows in which order things are asked. c is overwritten.
func Choose(d *weir.Decider, r *Request, c *Choice) {
	if r.Raw != "" {
		var path string
		c.Kind = Unreadable
		c.Match, path = unreadable(d, r.Raw)
		c.Surface = surfaceOf(d, path)
		return
	}
	c.Kind, c.Surface = Plain, surfaceOf(d, r.Path)
	switch {
	case r.Path == "*":
		c.Kind, c.Match = Asterisk, weir.Match{}
		return
	case c.Surface == NoSurface && isHealth(r.Path):
		c.Kind, c.Match = Health, weir.Match{}
		return
	case c.Surface != NoSurface && r.Asks == ForLeave:
		c.Kind, c.Match = Preflight, preflight(d, r.Path)
		return
	case !IsMethod(r.Method):
		c.Kind = UnknownMethod
	}
	c.Match = match(d, r.Method, r.Path)
	if r.Ambiguous && c.Kind == Plain && countsAgents(c.Match.Limiter()) {
		c.Kind, c.Match = AmbiguousAgent, d.Fallback(r.Path)
	}
}

// countsAgents reports whether a limiter, which may be nil, counts by agents.
func countsAgents(l *weir.Limiter) bool {
	if l == nil {
		return false
	}
	for i := range l.Windows {
		for _, part := range l.Windows[i].Key {
			if slices.Contains(part, identity.Agent) {
				return true
			}
		}
	}
	return false
}

func isHealth(path string) bool { return path == "/healthz" || path == "/readyz" }

// surfaceOf says which surface a decoded canonical path belongs to, whatever its letters' case. A path that only some
// backends would read as one of them is told by the route that covers it.
func surfaceOf(d *weir.Decider, path string) Surface {
	if s := surface(path); s != NoSurface || strings.IndexByte(path, ';') < 0 {
		return s
	}
	return surface(d.Fallback(path).Route().Path)
}

func surface(path string) Surface {
	switch {
	case isUnder(path, "/api/v1/widget"):
		return Widget
	case isUnder(path, "/v1/wp"):
		return Sync
	}
	return NoSurface
}

// isUnder reports whether path is prefix, or goes on after it with a new segment, parameters or an extension.
func isUnder(path, prefix string) bool {
	if len(path) < len(prefix) || !strings.EqualFold(path[:len(prefix)], prefix) {
		return false
	}
	return len(path) == len(prefix) || strings.IndexByte("/;.", path[len(prefix)]) >= 0
}

// ErrNoTarget says that a request target is none: an HTTP server answers it 400 before anybody is asked what to do with it.
var ErrNoTarget = errors.New("not a request target")

// Parse reads the target of a request line as net/http does. The error wraps ErrNoTarget.
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

// Clean brings the path of a request's URL to its one form (see Canonical), or returns a *PathError: then it is as it was.
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

// IsPlainQuery reports whether nothing in a query could end the request line, or the target, for the next reader. HTTP/2 lets it.
func IsPlainQuery(query string) bool {
	for i := range len(query) {
		if c := query[i]; c <= ' ' || c == '#' || c == 0x7f {
			return false
		}
	}
	return true
}

// received returns the path of a URL that cannot be read as it came. It is never empty.
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

// Query returns a raw query as an upstream receives it: as it came, byte for byte, but for bytes from 0x80 on, which are percent-encoded
// (RFC 3986, section 2.1). Nothing is copied for a query without them.
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
