package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// A Role is what a token may do. Each role includes the ones before it. The zero value is no role
// and may do nothing.
type Role int

// The roles, from the least to the most.
const (
	Metrics Role = iota + 1 // scrapes metrics, and asks for the health
	Read                    // sees everything
	Operate                 // resets and grants the budgets of callers
	Admin                   // replaces the policy
)

var roleNames = []string{Metrics: "metrics", Read: "read", Operate: "operate", Admin: "admin"}

// RoleNames returns the names of all roles, from the least to the most.
func RoleNames() []string { return slices.Clone(roleNames[Metrics:]) }

// ParseRole returns the role with that name, which is in lower case.
func ParseRole(name string) (Role, error) {
	if i := slices.Index(roleNames, name); i >= int(Metrics) {
		return Role(i), nil
	}
	return 0, fmt.Errorf("%.80q is not a role: expected %s", name, strings.Join(RoleNames(), ", "))
}

// String returns the name of the role.
func (r Role) String() string {
	if r < Metrics || r > Admin {
		return "none"
	}
	return roleNames[r]
}

// MarshalText returns the name of the role.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// includes reports whether a token with role r may do what needs the role other.
func (r Role) includes(other Role) bool { return other >= Metrics && r >= other && r <= Admin }

// An endpoint is one method of one path. HEAD is answered like GET.
type endpoint struct {
	method, path string
	needs        Role
	answer       func(*Server, http.ResponseWriter, *http.Request)
}

// endpoints returns all that need a token, with the role that each needs. docs/operate.md has this
// table, too. The listener for metrics serves those that need the role metrics, and no other.
func endpoints() []endpoint {
	return []endpoint{
		{http.MethodGet, "/metrics", Metrics, (*Server).showMetrics},
		{http.MethodGet, "/livez", Metrics, (*Server).showLive},
		{http.MethodGet, "/readyz", Metrics, (*Server).showReady},
		{http.MethodGet, "/status", Read, (*Server).showStatus},
		{http.MethodGet, "/policy", Read, (*Server).showPolicy},
		{http.MethodGet, "/candidate", Read, (*Server).showCandidate},
		{http.MethodGet, "/keys", Read, (*Server).showKeys},
		{http.MethodGet, "/denials/{id}", Read, (*Server).showDenial},
		{http.MethodGet, "/audit", Read, (*Server).showAudit},
		{http.MethodGet, "/profile/{kind}", Operate, (*Server).showProfile},
		{http.MethodPost, "/keys/reset", Operate, (*Server).resetKeys},
		{http.MethodPost, "/keys/grant", Operate, (*Server).grantKeys},
		{http.MethodPost, "/policy", Admin, (*Server).postPolicy},
	}
}

// serve returns a handler of the endpoints that wanted accepts. allow is called before each: if it
// returns false, it has refused the request.
func (s *Server) serve(wanted func(endpoint) bool, allow func(http.ResponseWriter, *http.Request, Role) bool) http.Handler {
	paths := make(map[string]methods)
	for _, e := range endpoints() {
		if !wanted(e) {
			continue
		}
		if paths[e.path] == nil {
			paths[e.path] = make(methods)
		}
		paths[e.path][e.method] = func(w http.ResponseWriter, r *http.Request) {
			if allow(w, r, e.needs) {
				e.answer(s, w, r)
			}
		}
	}
	mux := http.NewServeMux()
	for path, m := range paths {
		mux.Handle(path, m)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "not_found", "There is no such endpoint.")
	})
	return mux
}

// allowRole reports whether the request's token has a role that includes needs. If not, it refuses
// the request.
func allowRole(w http.ResponseWriter, r *http.Request, needs Role) bool {
	token := requester(r)
	if token.Role.includes(needs) {
		return true
	}
	// RFC 6750, 3.1
	w.Header().Set("WWW-Authenticate", `Bearer realm="`+Realm+`", error="insufficient_scope", scope="`+needs.String()+`"`)
	refuse(w, http.StatusForbidden, "role_required", fmt.Sprintf(
		"%s %s needs the role %s, and the token %s has the role %s; 'weir admin create NAME --role %s' makes a token with it.",
		r.Method, r.URL.Path, needs, token.Name, token.Role, needs))
	return false
}
