package identity

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
)

// A Place is where a request has its API token. Make one with ParsePlace. The zero Place is
// Authorization: Bearer. Places can be compared.
type Place struct {
	kind placeKind
	name string // of the field, in canonical form, or of the query parameter
}

type placeKind uint8

const (
	inBearer placeKind = iota
	inBasic
	inField
	inQuery
)

// PlaceForms are the spellings that ParsePlace accepts, for completion and help.
func PlaceForms() []string { return []string{"bearer", "basic", "header:NAME", "query:NAME"} }

// ParsePlace parses a place:
//
//	bearer           Authorization: Bearer TOKEN (RFC 6750)
//	basic            the user name of Authorization: Basic (RFC 7617); the password is ignored
//	header:X-Api-Key the whole value of an HTTP field
//	query:api_key    the value of a query parameter
func ParsePlace(s string) (Place, error) {
	base, _, _ := strings.Cut(s, ":")
	switch {
	case s == "bearer":
		return Place{kind: inBearer}, nil
	case s == "basic":
		return Place{kind: inBasic}, nil
	case base == "header":
		field, ok := canonicalName(s)
		if !ok {
			return Place{}, fmt.Errorf("%q: expected header: and the name of an HTTP field that callers may send, such as header:X-Api-Key", s)
		}
		if field == "Authorization" || field == "Cookie" {
			return Place{}, fmt.Errorf("%q: expected bearer or basic for Authorization, and no cookie", s)
		}
		if hasMeaning(field) {
			return Place{}, fmt.Errorf("%q: %s has another meaning, and clients or proxies send it without a token: expected a field for tokens alone, such as header:X-Api-Key", s, field)
		}
		return Place{kind: inField, name: field}, nil
	case base == "query":
		parameter, ok := canonicalName(s)
		if !ok {
			return Place{}, fmt.Errorf("%q: expected query: and 1 to 64 letters, digits, dots, dashes, underscores or tildes, such as query:api_key", s)
		}
		return Place{kind: inQuery, name: parameter}, nil
	}
	return Place{}, fmt.Errorf("%q: expected bearer, basic, header:NAME or query:NAME", s)
}

// fieldsWithMeaning are fields of requests that clients and proxies send for another purpose
// (RFC 9110, RFC 7239 and the registry of field names). A token in one would be part of what it
// says, and a request without a token would have a wrong one.
var fieldsWithMeaning = map[string]bool{
	"Accept": true, "Alt-Used": true, "Baggage": true, "Cache-Control": true, "Cdn-Loop": true, "Cf-Connecting-Ip": true, "Date": true,
	"Depth": true, "Destination": true, "Dnt": true, "Early-Data": true, "Fastly-Client-Ip": true, "Forwarded": true, "From": true,
	"Http2-Settings": true, "Idempotency-Key": true, "Last-Event-Id": true, "Max-Forwards": true, "Origin": true, "Overwrite": true,
	"Pragma": true, "Prefer": true, "Priority": true, "Proxy-Authorization": true, "Range": true, "Referer": true, "Save-Data": true,
	"Set-Cookie": true, "Traceparent": true, "Tracestate": true, "True-Client-Ip": true, "Upgrade-Insecure-Requests": true,
	"User-Agent": true, "Via": true, "X-Client-Ip": true, "X-Correlation-Id": true, "X-Http-Method-Override": true, "X-Real-Ip": true,
	"X-Request-Id": true, "X-Requested-With": true,
}

// meaningPrefixes are the beginnings of further such names.
var meaningPrefixes = []string{"Accept-", "Access-Control-", "Content-", "If-", "Sec-", "X-Forwarded-", "X-Original-"}

// hasMeaning reports whether a field, in canonical form, has a meaning that excludes tokens.
func hasMeaning(field string) bool {
	return fieldsWithMeaning[field] || slices.ContainsFunc(meaningPrefixes, func(prefix string) bool { return strings.HasPrefix(field, prefix) })
}

// canonicalName returns the name after the colon as the key source of that spelling has it; ok is
// false if it cannot be one.
func canonicalName(source string) (name string, ok bool) {
	key, err := weir.ParseKey(source)
	if err != nil || len(key) != 1 || len(key[0]) != 1 {
		return "", false
	}
	_, name = weir.SplitSource(key[0][0])
	return name, name != ""
}

// String returns the place as ParsePlace accepts it.
func (p Place) String() string {
	switch p.kind {
	case inBasic:
		return "basic"
	case inField:
		return "header:" + p.name
	case inQuery:
		return "query:" + p.name
	}
	return "bearer"
}

// Example returns how a request sends a token in this place, for messages.
func (p Place) Example() string {
	switch p.kind {
	case inBasic:
		return "the user name of Authorization: Basic"
	case inField:
		return p.name + ": <key>"
	case inQuery:
		return "?" + p.name + "=<key>"
	}
	return "Authorization: Bearer <token>"
}

// Challenge returns the challenge of WWW-Authenticate for the place. problem is an error code of
// RFC 6750, section 3.1, or empty. No scheme is registered for a field or a parameter; ApiKey is
// the usual name, with the words of OpenAPI.
func (p Place) Challenge(realm, problem string) string {
	switch p.kind {
	case inBasic:
		return `Basic realm="` + realm + `", charset="UTF-8"`
	case inField:
		return `ApiKey realm="` + realm + `", in="header", name="` + p.name + `"`
	case inQuery:
		return `ApiKey realm="` + realm + `", in="query", name="` + p.name + `"`
	}
	if problem != "" {
		problem = `, error="` + problem + `"`
	}
	return `Bearer realm="` + realm + `"` + problem
}

// Scheme returns the scheme of Authorization in which the place is, and "" if it is elsewhere.
func (p Place) Scheme() string {
	switch p.kind {
	case inBearer:
		return "Bearer"
	case inBasic:
		return "Basic"
	}
	return ""
}

// Field returns the HTTP field that is the place, in canonical form, and "" if it is none or
// Authorization.
func (p Place) Field() string {
	if p.kind == inField {
		return p.name
	}
	return ""
}

// Parameter returns the query parameter that is the place, and "" if it is none.
func (p Place) Parameter() string {
	if p.kind == inQuery {
		return p.name
	}
	return ""
}

// TokenPlaces returns where requests have their API tokens, at least one place. The result must not
// be changed.
func (r *Resolver) TokenPlaces() []Place { return r.places }

// checkPlaces returns the places, or the one that is meant if there are none.
func checkPlaces(places []Place) ([]Place, error) {
	if len(places) == 0 {
		return []Place{{}}, nil
	}
	for i, p := range places {
		if slices.Contains(places[:i], p) {
			return nil, fmt.Errorf("tokens from %v twice: name each place once", p)
		}
	}
	return slices.Clone(places), nil
}

var errTwoTokens = errors.New("the request has two different tokens: send one")

// tokenOf returns the token of a request. The first place that has one decides. A different one in
// another place is an error: a backend could go by that one. beside is not empty if the only
// different one is in Authorization: Bearer. It is no token if it is a session, which the caller of
// tokenOf finds out.
func tokenOf(req Request, places []Place) (token, beside string, err error) {
	if len(places) == 1 {
		token, err = places[0].read(req)
		return token, "", err
	}
	none := ErrNone
	for _, p := range places {
		found, err := p.read(req)
		switch {
		case err == ErrNone:
		case err == errOtherScheme && !slices.Contains(places, Place{kind: inBasic}):
			none = err // unless another place has one
		case err == errOtherScheme:
		case err != nil:
			return "", "", err
		case p.kind == inBearer:
			beside = found
		case token == "":
			token = found
		case token != found:
			return "", "", errTwoTokens
		}
	}
	switch {
	case token == "" && beside == "":
		return "", "", none
	case token == "" || token == beside:
		return beside, "", nil
	}
	return token, beside, nil
}

// read returns the token in one place, or ErrNone.
func (p Place) read(req Request) (token string, err error) {
	switch p.kind {
	case inBasic:
		token, err = basicUser(req)
	case inField:
		lines := req.Header(p.name)
		if len(lines) > 1 {
			return "", fmt.Errorf("%d %s fields: send one", len(lines), p.name)
		}
		if len(lines) == 1 {
			token = trimBlanks(lines[0])
		}
	case inQuery:
		token, err = onlyParameter(req.RawQuery(), p.name)
	default:
		return bearer(req)
	}
	switch {
	case err != nil:
		return "", err
	case token == "":
		return "", ErrNone
	case len(token) > maxBearer:
		return "", tooLong(token)
	}
	return token, nil
}

// basicUser returns the user name of Authorization: Basic. Unlike the other places it costs an
// allocation, for what base64 holds.
func basicUser(req Request) (string, error) {
	encoded, err := authorization(req, "Basic")
	if err == errOtherScheme {
		return "", ErrNone // a session, or what the backend goes by
	}
	if err != nil {
		return "", err
	}
	pair, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", errors.New("the Basic credential is not base64")
	}
	user, _, found := strings.Cut(string(pair), ":")
	if !found {
		return "", errors.New("the Basic credential has no colon: the token is the user name, before it")
	}
	return user, nil
}

// onlyParameter returns the value of a parameter of a raw query, and "" if there is none. It
// returns an error if readers would differ about it.
func onlyParameter(raw, name string) (value string, err error) {
	if raw == "" {
		return "", nil
	}
	if QueryIsAmbiguous(raw, name) {
		return "", fmt.Errorf("the query can be read as having more than one value of %[1]s: send %[1]s once, in exactly this spelling, percent-encoded, and without a semicolon", name)
	}
	value, _ = QueryValue(raw, name)
	return value, nil
}

// CutQuery returns a raw query without a parameter in any spelling that some readers take for its
// name (see QueryIsAmbiguous), and without one separator beside it. Everything else stays byte for
// byte. What a semicolon joins to the value of the parameter is part of that value to most readers,
// and goes with it; what comes before the parameter and a semicolon stays.
func CutQuery(raw, name string) string {
	if !mayName(raw, name) {
		return raw
	}
	var kept []string
	cut := false
	for pair := range strings.SplitSeq(raw, "&") {
		if !names(pair, name) {
			kept = append(kept, pair)
			continue
		}
		cut = true
		if rest, ok := cutJoined(pair, name); ok {
			kept = append(kept, rest)
		}
	}
	if !cut {
		return raw
	}
	return strings.Join(kept, "&")
}

// cutJoined returns a pair of a query without the parts between semicolons that are a parameter. ok
// is false if the first one is it.
func cutJoined(pair, name string) (rest string, ok bool) {
	var kept []string
	for part := range strings.SplitSeq(pair, ";") {
		switch {
		case !names(part, name):
			kept = append(kept, part)
		case len(kept) == 0:
			return "", false
		}
	}
	return strings.Join(kept, ";"), true
}

// names reports whether some readers find a parameter in a pair of a query, perhaps after a
// semicolon.
func names(pair, name string) bool {
	for part := range strings.SplitSeq(pair, ";") {
		if before, _, _ := strings.Cut(part, "="); readsAs(before, name) != otherName {
			return true
		}
	}
	return false
}
