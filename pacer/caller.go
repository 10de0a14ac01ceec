package pacer

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
)

// Source finds the value that the contract's server will find in a request (section 5, D13 to D15),
// as far as a caller can know. "session" is the value of Authorization: Bearer, unless that has the
// form of an API token. "token" is the same value, unless it has the form of a JWT, or X-Api-Key.
// "agent" is the header X-Agent-Id, else agent_id of the query or of a JSON body, else the
// User-Agent. "header:NAME" is the value of that field, if the request has it once; "cookie:NAME"
// and "query:NAME" are that of the cookie and the parameter, if it has no other; "host" is the host
// without port; "claim:NAME" is that claim of the session. A session that renews its token stays
// the same if the token names it by sid or jti. "cert" has no value, since a request does not show
// the certificate of its connection: it is the same for all requests of a Transport, unless the
// options have a Source that knows better.
func Source(r *http.Request, source string) (value string, ok bool) {
	switch source {
	case "agent":
		return agent(r), true
	case "session":
		bearer, ok := bearer(r)
		return bearer, ok && !strings.HasPrefix(bearer, tokenPrefix)
	case "token":
		if bearer, ok := bearer(r); ok && !isJWT(bearer) {
			return bearer, true
		}
		return Source(r, "header:X-Api-Key")
	}
	name, field := weir.SplitSource(source)
	switch name {
	case "header":
		if len(r.Header[field]) == 1 {
			value = strings.Trim(r.Header[field][0], " \t")
		}
	case "cookie":
		var all []string
		for _, c := range r.CookiesNamed(field) {
			all = append(all, c.Value)
		}
		value = only(all)
	case "query":
		value = only(r.URL.Query()[field])
	case "host":
		asked := url.URL{Host: cmp.Or(r.Host, r.URL.Host)}
		value = strings.ToLower(strings.TrimSuffix(asked.Hostname(), "."))
	case "claim":
		if token, ok := bearer(r); ok {
			value = claimOf(token, field)
		}
	}
	return value, value != ""
}

// only returns the value that all have, or "" if they differ or there is none.
func only(all []string) string {
	if len(all) == 0 || slices.ContainsFunc(all, func(v string) bool { return v != all[0] }) {
		return ""
	}
	return all[0]
}

const tokenPrefix = "wpt_"

// isJWT reports whether a credential has the form of a signed JWT (RFC 7515, section 7.1).
func isJWT(credential string) bool { return strings.Count(credential, ".") == 2 }

// bearer returns a request's bearer credential.
func bearer(r *http.Request) (string, bool) {
	const scheme = "bearer "
	values := r.Header["Authorization"]
	if len(values) != 1 || len(values[0]) <= len(scheme) || !strings.EqualFold(values[0][:len(scheme)], scheme) {
		return "", false
	}
	return strings.TrimLeft(values[0][len(scheme):], " "), true
}

// agent returns the id of the assistant that a request is for.
func agent(r *http.Request) string {
	if id := r.Header.Get("X-Agent-Id"); id != "" {
		return id
	}
	if strings.Contains(r.URL.RawQuery, "agent_id=") {
		if id := r.URL.Query().Get("agent_id"); id != "" {
			return id
		}
	}
	if r.GetBody != nil && strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		if id := agentOf(r.GetBody); id != "" {
			return id
		}
	}
	return r.UserAgent()
}

// agentOf reads agent_id from a body that can be read twice.
func agentOf(body func() (io.ReadCloser, error)) string {
	in, err := body()
	if err != nil {
		return ""
	}
	defer in.Close()
	var fields struct {
		Agent string `json:"agent_id"`
	}
	if json.NewDecoder(io.LimitReader(in, 16<<10)).Decode(&fields) != nil {
		return ""
	}
	return fields.Agent
}

// subject returns what the server counts by for a value: the id of an API token, the session of a
// JWT, else the value itself. shown is the same in a form for people: a short hash, unless it is
// public. The claims of a token are not verified; the token is the caller's own.
func subject(source, value string) (counted, shown string) {
	switch source {
	case "token":
		if rest, ok := strings.CutPrefix(value, tokenPrefix); ok {
			if id, _, ok := strings.Cut(rest, "_"); ok && len(id) <= 32 {
				return id, "token " + id
			}
		}
	case "session":
		if id := sessionOf(value); id != "" {
			return id, "session " + hashed(id)
		}
	case "agent":
		if len(value) <= 64 {
			return value, "agent " + value
		}
	}
	return value, source + " " + hashed(value)
}

// sessionOf returns the name of a JWT's session, or "".
func sessionOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	var claims struct{ Iss, Sid, Jti string }
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	switch {
	case claims.Sid != "":
		return "sid " + claims.Iss + " " + claims.Sid
	case claims.Jti != "":
		return "jti " + claims.Iss + " " + claims.Jti
	}
	return ""
}

// claimOf returns the issuer and the value of a JWT's claim, or "" if the server counts no value of
// it.
func claimOf(token, name string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	var claims map[string]any
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	issuer, _ := claims["iss"].(string)
	switch v := findClaim(claims, name).(type) {
	case string:
		if v != "" {
			return issuer + " " + v
		}
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return issuer + " " + strconv.FormatInt(int64(v), 10)
		}
	}
	return ""
}

// findClaim returns the claim of exactly that name, else the one that its dots lead to through
// objects, or nil. The server finds it in the same way.
func findClaim(in map[string]any, name string) any {
	if value, ok := in[name]; ok {
		return value
	}
	for i := range len(name) {
		if object, ok := in[name[:i]].(map[string]any); ok && name[i] == '.' {
			if value := findClaim(object, name[i+1:]); value != nil {
				return value
			}
		}
	}
	return nil
}

// hashed returns a short hash of a possible secret.
func hashed(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:4])
}
