package rules

import (
	"context"
	"net/http"
	"net/url"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/target"
)

// A Route is what one request asks for, and what covers it. Engines set Asked and Path, and Choose
// the rest.
type Route struct {
	Asked  target.Request
	Choice target.Choice
	// Site is whose upstream gets the request; nil: none serves its host, or the backend is a
	// handler.
	Site *Site

	// Foreign means that the connection was made for another host (Rules.IsForeign). Engines set it
	// before they ask for the gateway's own answer.
	Foreign bool

	// Outdated means that the client's certificate was verified when the connection began, and is
	// no longer valid (Rules.IsOutdated). Engines set it before they start the caller, who has no
	// certificate then.
	Outdated bool

	CORS   *CORS  // nil: nothing is said to browsers on other origins
	Origin string // the Access-Control-Allow-Origin of the answer; empty: none
}

// Choose finds what covers the request. Asked must be set; field returns the first value of a field
// of the request, empty if it has none. A request without a Host counts for the one that its
// upstream gets (see Onward).
func (r *Rules) Choose(t *Route, field func(name string) string) {
	t.Site = r.siteOf(t.Asked.Host)
	if t.Asked.Host == "" && t.Site != nil {
		t.Asked.Host = t.Site.own
	}
	target.Choose(r.Decider, &t.Asked, &t.Choice)
	t.CORS, t.Origin = nil, ""
	switch {
	case t.Choice.Surface == target.Widget:
		t.CORS, t.Origin = r.CORS, r.CORS.Allow(field("Origin"))
	case r.ownCORS != nil && !target.HasSurfaces(r.Decider):
		t.CORS, t.Origin = r.ownCORS, r.ownCORS.Allow(field("Origin"))
		if t.Origin != "" && t.Choice.Kind == target.Plain && t.Asked.Purpose == target.CORSPreflight {
			t.Choice.Kind, t.Choice.Match = target.Preflight, weir.Match{}
		}
	}
}

// IsPreflight reports whether the answer is one to a preflight, which is complete without
// CORS.Complete.
func (t *Route) IsPreflight() bool { return t.Choice.Kind == target.Preflight }

// IsLimited reports whether the answer of our own to this route is charged to the limiter that
// covers it.
func (t *Route) IsLimited() bool {
	return t.Choice.Kind != target.Asterisk && t.Choice.Kind != target.Health
}

// Own returns the gateway's own answer; nil if the backend answers. values returns the values of a
// field of the request.
func (r *Rules) Own(ctx context.Context, t *Route, values func(name string) []string) *Answer {
	switch t.Choice.Kind {
	case target.Asterisk:
		return &r.serverOptions
	case target.Health:
		return r.health(ctx, t.Asked.Method, t.Asked.Path)
	}
	if t.Outdated {
		return &outdated
	}
	if t.Foreign || t.Site == nil && len(r.Sites) > 0 {
		return &Misdirected
	}
	switch t.Choice.Kind {
	case target.Unreadable:
		return r.unreadable(&t.Asked)
	case target.AmbiguousQuery:
		return ambiguousQuery(t.Choice.Parameter)
	case target.UnknownMethod:
		return &r.unknownMethod
	case target.Preflight:
		return t.CORS.preflight(values)
	}
	return nil
}

// Purpose returns why a request is sent. field returns the first value of a field of the request.
func Purpose(method string, field func(name string) string) target.Purpose {
	if method == http.MethodOptions && field("Origin") != "" && field("Access-Control-Request-Method") != "" {
		return target.CORSPreflight
	}
	return target.Ordinary
}

// PathOf returns what the access log has as a request's path, unless it is forwarded as sent
// (CountedPath). u is what asked was read from.
func PathOf(asked *target.Request, u *url.URL) string {
	switch {
	case asked.Raw != "":
		return asked.Raw
	case asked.Sent != "":
		return asked.Sent
	case u.RawPath != "":
		return u.RawPath
	}
	return u.Path
}

// CountedPath returns what the access log has as the path of a request whose Asked.Sent is set,
// after Choose: the path by which it is counted, or the path as sent if it is Unreadable.
func (t *Route) CountedPath() string {
	if t.Choice.Kind == target.Unreadable {
		return t.Asked.Sent
	}
	return t.Asked.Counted()
}
