package rules

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// crossOrigin is what browsers on other origins may do with the widget surface (D22): any origin unless some are listed,
// never with credentials (cookies; a bearer token is a header like any other).
type crossOrigin struct {
	origins []string // allowed ones; nil allows any
	expose  []string // the fields that a script may read

	exposed, any []string // the values of the usual answer, shared by all of them: never changed, only replaced
}

// newCrossOrigin reads a list of origins; none, or "*", allow any. fields may be read beside the contract's.
func newCrossOrigin(origins []string, fields ...string) (*crossOrigin, error) {
	c := &crossOrigin{expose: []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After", "Date"}}
	c.expose = append(c.expose, fields...)
	c.exposed, c.any = []string{strings.Join(c.expose, ", ")}, []string{"*"}
	if slices.Contains(origins, "*") {
		if len(origins) > 1 {
			return nil, fmt.Errorf("cors origins %q: * allows any origin, and stands alone", origins)
		}
		return c, nil
	}
	for _, o := range origins {
		u, err := url.Parse(o)
		if err != nil || u.Scheme == "" || u.Host == "" || u.User != nil || o != u.Scheme+"://"+u.Host || o != strings.ToLower(o) {
			return nil, fmt.Errorf("cors origin %q: an origin is a scheme and a host in small letters, with a port where it is not the usual one, and nothing after it: https://shop.example", o)
		}
		c.origins = append(c.origins, o)
	}
	return c, nil
}

// allow returns the Access-Control-Allow-Origin for a request from origin; empty where it is not allowed.
func (c *crossOrigin) allow(origin string) string {
	switch {
	case c.origins == nil:
		return "*"
	case slices.Contains(c.origins, origin):
		return origin
	}
	return ""
}

// A responseHeader is the header of a response, as each engine keeps it. Names are in canonical form.
type responseHeader interface {
	values(name string) []string
	put(name string, values []string) // in place of what is there; values are shared, and never changed
	remove(name string)
}

// httpHeader is net/http's.
type httpHeader http.Header

func (h httpHeader) values(name string) []string      { return h[name] }
func (h httpHeader) put(name string, values []string) { h[name] = values }
func (h httpHeader) remove(name string)               { delete(h, name) }

// complete writes the fields of an actual response: ours alone say who may read it, a backend's list of readable fields
// is kept and extended. allowed is what allow returned.
func (c *crossOrigin) complete(h responseHeader, allowed string) {
	h.remove("Access-Control-Allow-Credentials")
	c.writeOrigin(h, allowed)
	own := h.values("Access-Control-Expose-Headers")
	if len(own) == 0 {
		h.put("Access-Control-Expose-Headers", c.exposed)
		return
	}
	list := strings.Join(own, ", ")
	for _, name := range c.expose {
		if !listed(list, name) {
			list += ", " + name
		}
	}
	h.put("Access-Control-Expose-Headers", []string{list})
}

func (c *crossOrigin) writeOrigin(h responseHeader, allowed string) {
	switch allowed {
	case "":
		h.remove("Access-Control-Allow-Origin")
	case "*":
		h.put("Access-Control-Allow-Origin", c.any)
	default:
		h.put("Access-Control-Allow-Origin", []string{allowed})
	}
	if c.origins == nil {
		return
	}
	if vary := h.values("Vary"); !listed(strings.Join(vary, ","), "Origin") {
		h.put("Vary", append(slices.Clone(vary), "Origin"))
	}
}

// listed reports whether a comma-separated list has a name.
func listed(list, name string) bool {
	for item := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(item), name) {
			return true
		}
	}
	return false
}

// isPreflight reports whether a browser asks for leave rather than for the thing itself.
// field returns the first value of a field of the request.
func isPreflight(method string, field func(name string) string) bool {
	return method == http.MethodOptions && field("Origin") != "" && field("Access-Control-Request-Method") != ""
}

// answer writes a preflight's answer. Every known method is allowed, and the headers asked for: what a request may do is
// for the backend to say, once it is sent. A nil c allows nothing.
func (c *crossOrigin) answer(w http.ResponseWriter, r *http.Request) {
	if c == nil { // not a surface that browsers call
		w.WriteHeader(http.StatusNoContent)
		return
	}
	h := w.Header()
	allowed := c.allow(r.Header.Get("Origin"))
	c.writeOrigin(httpHeader(h), allowed)
	if allowed != "" {
		h.Set("Access-Control-Allow-Methods", allMethods)
		h.Set("Access-Control-Max-Age", "7200")
		h.Add("Vary", "Access-Control-Request-Headers")
		if names := fieldNames(r.Header["Access-Control-Request-Headers"]); names != "" {
			h.Set("Access-Control-Allow-Headers", names)
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// fieldNames returns a list of field names as it came, or nothing where it is not one.
func fieldNames(lines []string) string {
	list := strings.Join(lines, ",")
	if len(list) > 2<<10 {
		return ""
	}
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.Trim(name, " "); strings.ContainsFunc(name, func(c rune) bool { return c > 0x7f || !isToken(byte(c)) }) {
			return ""
		}
	}
	return list
}

func isToken(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
