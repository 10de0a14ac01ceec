package rules

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/wire"
)

// CORS is what browsers on other origins may do: with the widget surface (D22), any origin unless
// some are listed, never with credentials (cookies; a bearer token is a field like any other); or
// with an API of one's own, the listed origins. It is safe for concurrent use.
type CORS struct {
	origins []string // allowed ones; nil allows any
	shares  bool     // an API of one's own: what the backend allows stays
	expose  []string // the fields that a script may read
	methods string   // the accepted ones, as a list

	// the values of the usual answer, shared by all answers: never changed, only replaced
	exposed, any []string
}

// newCORS reads a list of origins; none, or "*", allow any. fields may be read beside the
// contract's.
func newCORS(origins []string, fields ...string) (*CORS, error) {
	c := &CORS{expose: []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After", "Date"}}
	c.expose = append(c.expose, fields...)
	c.exposed, c.any = []string{strings.Join(c.expose, ", ")}, []string{"*"}
	if slices.Contains(origins, "*") {
		if len(origins) > 1 {
			return nil, fmt.Errorf("cors origins %q: * allows any origin, and must be the only one", origins)
		}
		return c, nil
	}
	for _, o := range origins {
		u, err := url.Parse(o)
		if err != nil || u.Scheme == "" || u.Host == "" || u.User != nil || o != u.Scheme+"://"+u.Host || o != strings.ToLower(o) {
			return nil, fmt.Errorf("cors origin %q: an origin is a scheme and a host in small letters, with a port if it is not the usual one, and nothing after it: https://shop.example", o)
		}
		c.origins = append(c.origins, o)
	}
	return c, nil
}

// Allow returns the Access-Control-Allow-Origin for a request from origin; empty if that is not
// allowed.
func (c *CORS) Allow(origin string) string {
	switch {
	case c.origins == nil:
		return "*"
	case slices.Contains(c.origins, origin):
		return origin
	}
	return ""
}

// A Header is the header of an answer, as an engine keeps it. Names are in canonical form.
type Header interface {
	Values(name string) []string
	// replaces what is there; values are shared, and never changed
	Put(name string, values []string)
	Remove(name string)
}

// Shares reports whether a backend that answers for itself who may read it is left to do so.
func (c *CORS) Shares() bool { return c.shares }

// Complete writes the fields of an actual answer. On the widget surface only ours decide who may
// read it; elsewhere ours are for an answer that has none, as the gateway's own. A backend's list
// of readable fields is kept and extended. allowed is what Allow returned.
func (c *CORS) Complete(h Header, allowed string) {
	if !c.shares {
		h.Remove("Access-Control-Allow-Credentials")
		c.writeOrigin(h, allowed)
	} else if len(h.Values("Access-Control-Allow-Origin")) == 0 {
		if c.writeOrigin(h, allowed); allowed == "" {
			return
		}
		// A backend may send it for origins that it does not allow, too.
		h.Remove("Access-Control-Allow-Credentials")
	}
	own := h.Values("Access-Control-Expose-Headers")
	if len(own) == 0 {
		h.Put("Access-Control-Expose-Headers", c.exposed)
		return
	}
	list := strings.Join(own, ", ")
	for _, name := range c.expose {
		if !Names(list, name) {
			list += ", " + name
		}
	}
	h.Put("Access-Control-Expose-Headers", []string{list})
}

func (c *CORS) writeOrigin(h Header, allowed string) {
	switch allowed {
	case "":
		h.Remove("Access-Control-Allow-Origin")
	case "*":
		h.Put("Access-Control-Allow-Origin", c.any)
	default:
		h.Put("Access-Control-Allow-Origin", []string{allowed})
	}
	if c.origins == nil {
		return
	}
	if vary := h.Values("Vary"); !Names(strings.Join(vary, ","), "Origin") {
		h.Put("Vary", append(slices.Clone(vary), "Origin"))
	}
}

// preflight returns the answer to a preflight. It allows every known method, and the fields that
// the browser asks for: what a request may do is decided by the backend, when the request is sent.
// A nil c allows nothing.
func (c *CORS) preflight(values func(name string) []string) *Answer {
	answer := &Answer{Status: http.StatusNoContent}
	if c == nil { // not a surface that browsers call
		return answer
	}
	var h Fields
	var origin string
	if origins := values("Origin"); len(origins) > 0 {
		origin = origins[0]
	}
	allowed := c.Allow(origin)
	c.writeOrigin(&h, allowed)
	if allowed != "" {
		h.Put("Access-Control-Allow-Methods", []string{c.methods})
		h.Put("Access-Control-Max-Age", []string{"7200"})
		h.Put("Vary", append(h.Values("Vary"), "Access-Control-Request-Headers"))
		if names := fieldNames(values("Access-Control-Request-Headers")); names != "" {
			h.Put("Access-Control-Allow-Headers", []string{names})
		}
	}
	answer.Fields = h
	return answer
}

// fieldNames returns a list of field names as it came; empty if it is not such a list, or too long.
func fieldNames(lines []string) string {
	list := strings.Join(lines, ",")
	if len(list) > 2<<10 {
		return ""
	}
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.Trim(name, " "); name != "" && !wire.IsToken(name) {
			return ""
		}
	}
	return list
}
