package check

import (
	"net/http"
	"slices"
)

// A Dialect is which proxy asks. It is chosen by the operator and never guessed: a client of the
// proxy chooses fields too, and must not choose by which of them it is judged.
type Dialect string

// The dialects.
const (
	Nginx     Dialect = "nginx"
	Traefik   Dialect = "traefik"
	Caddy     Dialect = "caddy"
	Envoy     Dialect = "envoy"      // ext_authz with http_service
	EnvoyGRPC Dialect = "envoy-grpc" // ext_authz with grpc_service
)

// Dialects returns all of them.
func Dialects() (all []string) {
	for i := range dialects {
		all = append(all, string(dialects[i].dialect))
	}
	return all
}

// The fields in which proxies describe a request, in net/http's spelling.
const (
	originalMethod = "X-Original-Method"
	originalURI    = "X-Original-Uri"
	originalHost   = "X-Original-Host"
	originalAddr   = "X-Original-Addr"

	forwardedMethod = "X-Forwarded-Method"
	forwardedURI    = "X-Forwarded-Uri"
	forwardedHost   = "X-Forwarded-Host"
	forwardedFor    = "X-Forwarded-For"
)

// questions are how the questions of a dialect are read. Each field that is named must be there
// once: a proxy that is configured to send it replaces what its client has sent, and one that is
// not would let the client choose.
type questions struct {
	dialect Dialect
	// The fields with the method, the request target, and the host. Empty: the question has them as
	// its own.
	method, uri, host string
	// The field with the address of the proxy's client. If it is a list, the proxy has appended
	// that address, and what is before it is the client's X-Forwarded-For.
	addr   string
	isList bool
	// seals means that refusals are sealed (see sealed.go).
	seals bool
	// hasHealth means that the door answers /healthz and /readyz as its own: the target of a
	// question is no client's choice.
	hasHealth bool
	// admits is the status of the answer about a request that is admitted.
	admits int
	// foreign are the fields that only the proxies of other dialects send. With one of them, a
	// question means two things: another proxy asks than the operator has named, or a client tries
	// whether it can.
	foreign []string
}

var dialects = []questions{
	{dialect: Nginx, method: originalMethod, uri: originalURI, host: originalHost, addr: originalAddr, admits: http.StatusNoContent, seals: true, hasHealth: true},
	{dialect: Traefik, method: forwardedMethod, uri: forwardedURI, host: forwardedHost, addr: forwardedFor, isList: true, admits: http.StatusNoContent, hasHealth: true},
	{dialect: Caddy, method: forwardedMethod, uri: forwardedURI, host: forwardedHost, addr: forwardedFor, isList: true, admits: http.StatusNoContent, hasHealth: true},
	// It takes any other of the 200s for a denial.
	{dialect: Envoy, addr: originalAddr, admits: http.StatusOK},
	{dialect: EnvoyGRPC, admits: http.StatusNoContent},
}

// questionsOf returns how questions of a dialect are read; nil if there is none of that name.
func questionsOf(of Dialect) *questions {
	at := slices.IndexFunc(dialects, func(q questions) bool { return q.dialect == of })
	if at < 0 {
		return nil
	}
	q := dialects[at]
	for i := range dialects {
		for _, name := range []string{dialects[i].method, dialects[i].uri} {
			if name != "" && name != q.method && name != q.uri && !slices.Contains(q.foreign, name) {
				q.foreign = append(q.foreign, name)
			}
		}
	}
	return &q
}
