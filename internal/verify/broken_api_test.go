package verify_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// The fields' names, as sent.
const (
	agent  = "demo"
	tokenA = "wpt_alice_9uH3kQ7vZs2Lq8Xw1YbRtN0c"
	tokenB = "wpt_bob_5mD1gT6pWc4Jf7Va0KeSiU2x"
)

// serve answers the request, but does not write the answer.
func (x *exchange) serve() {
	raw, _, _ := strings.Cut(x.r.RequestURI, "?")
	if u, err := url.Parse(x.r.RequestURI); err == nil && u.Host != "" && !strings.HasPrefix(raw, "/") {
		raw = u.EscapedPath() // the absolute form
	}
	// If a body broke off, the part that arrived is used.
	x.sent, _ = io.ReadAll(io.LimitReader(x.r.Body, 1<<16))
	path, readable := canonical(raw)
	x.raw, x.path = raw, path
	x.verify()
	if x.breaks.verify != nil {
		x.breaks.verify(x)
	}
	x.rule = x.ruleFor(path, readable)
	if x.rule == nil {
		x.fail(http.StatusNotFound, "not_found", "no such page")
		return
	}
	x.expose()
	switch {
	case !x.count():
	case !readable:
		x.fail(http.StatusBadRequest, "invalid_request", "the path has no single reading")
	case x.isPreflight():
		x.status = http.StatusNoContent
		x.header.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
		x.header.Set("Access-Control-Allow-Headers", x.r.Header.Get("Access-Control-Request-Headers"))
	default:
		x.answer()
	}
}

func (x *exchange) isPreflight() bool {
	return x.r.Method == http.MethodOptions && x.r.Header.Get("Origin") != "" && x.r.Header.Get("Access-Control-Request-Method") != ""
}

// expose lets scripts of other origins read the answer.
func (x *exchange) expose() {
	if !isUnder(strings.ToLower(x.path), "/api/v1/widget") {
		return
	}
	x.header.Set("Access-Control-Allow-Origin", "*")
	if !x.isPreflight() {
		x.header.Set("Access-Control-Expose-Headers", "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After, Date")
	}
}

// canonical resolves the path. readable is false if there is more than one way to
// do so.
func canonical(raw string) (path string, readable bool) {
	if _, err := url.PathUnescape(raw); err != nil {
		return raw, false
	}
	readable = true
	defer func() {
		if !readable { // the likely meaning
			path = strings.ReplaceAll(path, "\\", "/")
		}
	}()
	var kept []string
	for segment := range strings.SplitSeq(raw, "/") {
		segment, _ = url.PathUnescape(segment)
		twice, err := url.PathUnescape(segment)
		if strings.ContainsAny(segment, "/\\") || strings.ContainsFunc(segment, func(r rune) bool { return r < 0x20 || r == 0x7f }) ||
			err == nil && twice != segment {
			readable = false
		}
		switch segment {
		case "", ".":
		case "..":
			kept = kept[:max(0, len(kept)-1)]
		default:
			kept = append(kept, segment)
		}
	}
	return "/" + strings.Join(kept, "/"), readable
}

// spelled is the path by which a limiter is chosen, because backends differ in
// which spellings are the same path.
func spelled(path string) string {
	var kept []string
	for segment := range strings.SplitSeq(strings.ToLower(path), "/") {
		segment, _, _ = strings.Cut(segment, ";")
		kept = append(kept, strings.Trim(segment, " "))
	}
	return strings.Join(kept, "/")
}

// ruleFor returns the limiter that counts the request, or nil.
func (x *exchange) ruleFor(path string, readable bool) *rule {
	surface := spelled(path)
	switch path = surface; {
	case x.breaks.spelled != nil:
		path = x.breaks.spelled(x.raw, x.path)
	case x.strict:
		path = x.raw
	}
	widget, wp := isUnder(surface, "/api/v1/widget"), isUnder(surface, "/v1/wp")
	if x.strict { // other paths have no limiter
		widget, wp = isUnder(path, "/api/v1/widget"), isUnder(path, "/v1/wp")
	}
	switch {
	case !widget && !wp:
		return nil
	case x.isPreflight():
		if x.breaks.preflight != nil {
			return x.named(x.breaks.preflight(x))
		}
		return x.named(fallback)
	case !readable && widget:
		return x.named(fallback)
	}
	for i := range x.rules {
		for _, route := range x.rules[i].routes {
			if covers(route, x.r.Method, path) {
				return &x.rules[i]
			}
		}
	}
	if widget || x.breaks.spelled != nil {
		return x.named(fallback)
	}
	return nil
}

func isUnder(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// covers reports whether a route matches the method and the path.
func covers(route, method, path string) bool {
	if m, rest, ok := strings.Cut(route, " "); ok {
		if m != method {
			return false
		}
		route = rest
	}
	prefix, wild := strings.CutSuffix(route, "*")
	if wild && strings.HasPrefix(path+"/", prefix) {
		return true
	}
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '/' || rest[0] == '.')
}

// ip is the connection's peer address: no proxy is trusted.
func (x *exchange) ip() string {
	if x.breaks.peer != nil {
		if s := x.breaks.peer(x.r); s != "" {
			return s
		}
	}
	host, _, _ := net.SplitHostPort(x.r.RemoteAddr)
	return host
}

// agent is the agent that the widget claims to be.
func (x *exchange) agent() string {
	if id := x.r.Header.Get("X-Agent-Id"); id != "" {
		return id
	}
	if id := x.r.URL.Query().Get("agent_id"); id != "" {
		return id
	}
	var form struct {
		Agent string `json:"agent_id"`
	}
	_ = json.Unmarshal(x.sent, &form) // a body that is not JSON names no agent
	return form.Agent
}

// secret signs sessions.
const secret = "0123456789abcdef0123456789abcdef"

func sign(signed string) []byte {
	m := hmac.New(sha256.New, []byte(secret))
	_, _ = m.Write([]byte(signed))
	return m.Sum(nil)
}

// mint returns the token of a new session.
func (x *exchange) mint() string {
	x.mu.Lock()
	x.minted++
	claims := fmt.Sprintf(`{"sid":"s%d","exp":%d}`, x.minted, x.now.Unix()+86400)
	x.mu.Unlock()
	enc := base64.RawURLEncoding
	signed := enc.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + enc.EncodeToString([]byte(claims))
	return signed + "." + enc.EncodeToString(sign(signed))
}

// sessionOf returns the session of a token, and whether the token verifies.
func sessionOf(token string, unix int64) (id string, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", false
	}
	var claims struct {
		ID  string `json:"sid"`
		Exp int64  `json:"exp"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.ID == "" {
		return "", false
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	return claims.ID, err == nil && hmac.Equal(signature, sign(parts[0]+"."+parts[1])) && unix < claims.Exp
}

// verify checks the request's credential.
func (x *exchange) verify() {
	scheme, credential, _ := strings.Cut(x.r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return
	}
	x.claimed = strings.TrimSpace(credential)
	if id, ok := sessionOf(x.claimed, x.now.Unix()); ok {
		x.session = id
	}
	if x.claimed == tokenA || x.claimed == tokenB {
		x.token = strings.Split(x.claimed, "_")[1]
	}
}

// endpoints are the backend's: by path, the methods, and the field that a body must
// have.
func endpoints() map[string]map[string]string {
	post := func(field string) map[string]string { return map[string]string{"POST": field} }
	return map[string]map[string]string{
		"/api/v1/widget/init":          post(""),
		"/api/v1/widget/messages":      post("text"),
		"/api/v1/widget/events":        {"GET": "", "POST": "type"},
		"/api/v1/widget/conversations": {"GET": "", "POST": ""},
		"/api/v1/widget/leads":         post("email"),
		"/api/v1/widget/typing":        post("typing"),
		"/api/v1/widget/satisfaction":  post("score"),
		"/api/v1/widget/coupon/apply":  post("code"),
		"/v1/wp/status":                {"GET": ""},
		"/v1/wp/documents":             {"GET": "", "PUT": "items", "DELETE": "items"},
		"/v1/wp/coupons":               {"GET": "", "PUT": "items"},
	}
}

// endpoint returns the backend's endpoint of a path.
func (x *exchange) endpoint() string {
	if x.strict {
		return x.raw
	}
	return strings.TrimSuffix(spelled(x.path), ".json")
}

// answer is the backend's handler.
func (x *exchange) answer() {
	path := x.endpoint()
	methods, ok := endpoints()[path]
	field, known := methods[strings.Replace(x.r.Method, "HEAD", "GET", 1)]
	widget, init := isUnder(path, "/api/v1/widget"), strings.HasSuffix(path, "/init")
	var form map[string]any
	switch {
	case !ok:
		x.fail(http.StatusNotFound, "not_found", "no such endpoint")
	case !known:
		x.header.Set("Allow", strings.Join(slices.Sorted(maps.Keys(methods)), ", "))
		x.fail(http.StatusMethodNotAllowed, "method_not_allowed", "not with this method")
	case widget && !init && x.session == "", !widget && x.token == "", x.forged:
		x.header.Set("WWW-Authenticate", "Bearer")
		x.fail(http.StatusUnauthorized, "unauthenticated", "a credential is needed, and this is none")
	case len(bytes.TrimSpace(x.sent)) > 0 && json.Unmarshal(x.sent, &form) != nil:
		x.fail(http.StatusBadRequest, "invalid_request", "the body is not a JSON object")
	case field != "" && form[field] == nil:
		x.fail(http.StatusBadRequest, "invalid_request", strconv.Quote(field)+" is missing")
	case init && x.agent() == "":
		x.fail(http.StatusBadRequest, "invalid_request", "no agent")
	case init && x.agent() != agent:
		x.fail(http.StatusNotFound, "not_found", "unknown agent")
	case init:
		x.json(http.StatusCreated, fmt.Sprintf(`{"token":%q}`, x.mint()))
	case x.r.Method == http.MethodPost:
		x.json(http.StatusCreated, `{"id":"1"}`)
	default:
		x.json(http.StatusOK, `{"items":[]}`)
	}
}

func (x *exchange) json(status int, body string) {
	x.status, x.body = status, body
	x.header.Set("Content-Type", "application/json")
}

// fail writes an error object.
func (x *exchange) fail(status int, code, message string) {
	x.json(status, fmt.Sprintf(`{"error":{"code":%q,"message":%q}}`, code, message))
}

// messages are the texts of a 429, by language.
func messages() map[string]string {
	return map[string]string{
		"en": "Too many widget requests for this conversation. Please slow down.",
		"de": "Zu viele Anfragen in dieser Unterhaltung. Bitte etwas langsamer.",
		"fr": "Trop de demandes pour cette conversation. Merci de ralentir.",
		"es": "Demasiadas peticiones en esta conversación. Vaya más despacio.",
	}
}

// language returns the key of messages that the caller prefers.
func (x *exchange) language() string {
	best, weight := "en", 0.0
	for item := range strings.SplitSeq(x.r.Header.Get("Accept-Language"), ",") {
		tag, parameter, _ := strings.Cut(strings.ReplaceAll(item, " ", ""), ";q=")
		q, err := strconv.ParseFloat(parameter, 64)
		if err != nil {
			q = 1
		}
		primary, _, _ := strings.Cut(strings.ToLower(tag), "-")
		if _, ok := messages()[primary]; ok && q > weight {
			best, weight = primary, q
		}
	}
	return best
}

// refuse writes a 429.
func (x *exchange) refuse() {
	tag := x.language()
	x.fail(http.StatusTooManyRequests, "rate_limited", messages()[tag])
	x.header.Set("Content-Language", tag)
	x.header.Set("Vary", "Accept-Language")
	x.header.Set("Cache-Control", "no-store")
}
