package sample

import (
	"errors"
	"net/http"
	"strings"

	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// serve answers one request. It checks path, method, caller and query in that order and calls the
// endpoint.
func (b *Backend) serve(w http.ResponseWriter, hr *http.Request) {
	r := &request{Request: hr, w: w, now: b.now()}
	if err := b.dispatch(r); err != nil {
		b.fail(r, err)
	}
}

func (b *Backend) dispatch(r *request) error {
	if p := findPage(r.URL.Path); p != nil {
		return r.page(p)
	}
	if r.URL.Path == home {
		return r.redirectHome()
	}
	found, parameters := b.find(r.URL.Path)
	if found == nil {
		return refuse(http.StatusNotFound, "no such endpoint: %s; this server has %s and %s, described at /docs, and a page to try them at /demo", show(r.URL.Path), widget, wp)
	}
	if r.Method == http.MethodOptions {
		r.w.Header().Set("Allow", found.allow)
		return r.empty()
	}
	if r.route = found.route(r.Method); r.route == nil {
		r.w.Header().Set("Allow", found.allow)
		return refuse(http.StatusMethodNotAllowed, "method %s is not allowed here: allowed are %s", show(r.Method), found.allow)
	}
	r.parameters = parameters
	if err := b.admit(r); err != nil {
		return err
	}
	if err := r.parseQuery(); err != nil {
		return err
	}
	return r.route.serve(b, r)
}

// find returns the resource at a path and the path's parameters, or nil for an unknown path.
func (b *Backend) find(path string) (*resource, []string) {
	segments := strings.Split(path, "/")
	for _, res := range b.resources {
		if parameters, ok := res.match(segments); ok {
			return res, parameters
		}
	}
	return nil, nil
}

// admit authenticates the caller as the route requires, and refuses it with a 401 otherwise.
func (b *Backend) admit(r *request) (err error) {
	switch r.route.access {
	case bySession:
		r.session, err = b.sessionOf(r)
	case byToken:
		r.token, err = b.tokenOf(r)
	}
	return err
}

// caller returns the caller that the middleware identified, or identifies the caller of a request
// without middleware.
func (b *Backend) caller(r *request) *identity.Caller {
	if c, ok := httplimit.CallerOf(r.w); ok {
		return c
	}
	c := new(identity.Caller)
	b.resolver.Start(c, &identity.HTTPRequest{Request: r.Request})
	return c
}

// tokenOf returns the claims of the caller's API token, whose workspace scopes every row of the
// answer.
func (b *Backend) tokenOf(r *request) (identity.TokenClaims, error) {
	claims, err := b.caller(r).Token()
	var unread *lookupError
	switch {
	case errors.As(err, &unread):
		return claims, unread.cause // the database's error, not the caller's
	case err != nil:
		return claims, b.unauthenticated(r, "no valid API token: %v; send Authorization: Bearer with one that weir token create printed", err)
	case claims.Workspace == "":
		return claims, errors.New("a token of no workspace")
	}
	return claims, nil
}

// sessionOf returns the caller's session. Its token must be valid and the session must exist in
// this data directory.
func (b *Backend) sessionOf(r *request) (sqlite.Session, error) {
	const how = "send Authorization: Bearer with the token that POST /api/v1/widget/init returns"
	claims, err := b.caller(r).Session()
	if err != nil {
		return sqlite.Session{}, b.unauthenticated(r, "no valid session: %v; %s", err, how)
	}
	s, err := b.db.Session(r.Context(), claims.ID)
	if errors.Is(err, sqlite.ErrNotFound) {
		return s, b.unauthenticated(r, "the session no longer exists; %s", how)
	}
	return s, err
}

func (b *Backend) unauthenticated(r *request, format string, args ...any) error {
	r.w.Header().Set("WWW-Authenticate", "Bearer")
	return refuse(http.StatusUnauthorized, format, args...)
}
