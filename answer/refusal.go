package answer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// A refusal is the part of an answer that does not depend on its window. It is built once and
// shared by all answers of its kind.
type refusal struct {
	body   []byte
	fields []Field
}

func newRefusal(contentType string, body []byte, more ...[]Field) refusal {
	fields := []Field{
		{"Content-Type", contentType},
		{"Cache-Control", "no-store"},
		{"Content-Length", strconv.Itoa(len(body))},
	}
	return refusal{body, append(fields, slices.Concat(more...)...)}
}

// ErrorBody returns the body that every error has: {"error":{"code":…,"message":…}} (D21). Invalid
// UTF-8 becomes U+FFFD. Characters such as "<" are not escaped, because the body is sent as
// application/json and is not HTML.
func ErrorBody(code, message string) []byte {
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	body.Error.Code, body.Error.Message = code, message
	return encode(body)
}

// encode returns v, which has only texts and numbers, as JSON.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // encoding texts and numbers cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// The texts of the 503s. They have no Retry-After, because the end of the outage is unknown.
const (
	// of FailDeny (D25)
	uncountedText = "Requests cannot be counted at the moment, so this one was not served. Please try again soon."
	// for a credential whose validity cannot be determined now
	unreadableText = "Credentials cannot be checked at the moment, so this request was not served. Please try again soon."
)

// accept returns the lines of the request's Accept field.
func (q *Question) accept() []string {
	if q.Caller != nil {
		return q.Caller.Request().Header("Accept")
	}
	return q.Accept
}

// forbiddenText is the text of the 403 for a caller that the limiter denies. It has nothing of the
// reason, such as the list that has the caller.
const forbiddenText = "This client may not use this service. If that is a mistake, the operator of this service can change it."

// say sets the body of an answer that ends the request. The fields of a must be set.
func (j *Judge) say(q *Question, a *Answer) {
	accepted := a.prepared.accept(q.accept())
	if v := a.variant; !accepted.problem && v.ready.body != nil {
		a.refusal = &v.ready
		return
	}
	text := a.variant.expand(a)
	var r refusal
	if accepted.problem {
		names, penalty := violated(a)
		form := a.form
		if penalty {
			form = &a.prepared.penalized
		}
		r = form.problem(a.variant, text, names, accepted)
	} else {
		r = a.form.errorObject(a.variant, text)
	}
	a.refusal = &r
}

// violated returns the names of the windows that refused, as RateLimit-Policy has them. penalty is
// true if the caller is under one.
func violated(a *Answer) (names []string, penalty bool) {
	if a.Outcome != Refused {
		return nil, false
	}
	standings := a.Decision.Standings()
	for i := range standings {
		if s := &standings[i]; s.Refused {
			names, penalty = append(names, memberName(standings, s)), penalty || s.Penalty
		}
	}
	return names, penalty
}

// languagesOf returns the lines of the request's Accept-Language field.
func languagesOf(q *Question) []string {
	if q.Caller != nil {
		return q.Caller.Request().Header("Accept-Language")
	}
	return q.Languages
}

// refusal returns the text of the 429 of the window or limit b, in the language that the request
// asks for.
func (w *prepared) refusal(b *weir.Standing, q *Question) *variant {
	name := MessageOf(w.of, b.Limiter)
	if b.InFlight && w.of.MessageOf(b.Limiter) == "" {
		name = flightMessage
	}
	m := w.messages[name]
	if m == nil {
		m = w.messages[generalMessage]
	}
	return m.in(languagesOf(q))
}

// A credentialWords is what a 401 calls a credential, and how to get one.
type credentialWords struct{ name, obtain string }

// contractWords are for limiters with the contract's messages, and neutralWords for all others: a
// caller of another API must not read of what the contract's has.
var (
	contractWords = map[string]map[string]credentialWords{
		widgetMessage: {identity.Session: {"visitor session", `POST /api/v1/widget/init returns one as "token"; send it as Authorization: Bearer <token>.`}},
		syncMessage: {identity.Token: {"workspace API token",
			"The operator of this service creates one (weir token create --workspace NAME); send it as Authorization: Bearer <token>."}},
	}
	neutralWords = map[string]credentialWords{
		identity.Session: {"session token", "Send it as Authorization: Bearer <token>."},
		identity.Token:   {"API key", "Send it as Authorization: Bearer <key>."},
		identity.Cert:    {"client certificate", "Connect with one of an authority that this service accepts."},
	}
)

// unauthenticated returns the text of the 401 for a credential that is missing or invalid (D16).
func (j *Judge) unauthenticated(w *prepared, l *weir.Limiter, source string, why error, q *Question) *variant {
	m := w.credentials[source]
	if m == nil {
		m = w.noCredential
	}
	if m != nil {
		return m.in(languagesOf(q))
	}
	words, ok := contractWords[MessageOf(w.of, l)][source]
	if !ok {
		words = neutralWords[source]
	}
	if words.name == "" {
		words.name = "credential"
	}
	how, ok := j.options.Credentials[source]
	if !ok {
		how = words.obtain
	}
	text := fmt.Sprintf("The %s was not accepted: %v. %s", words.name, why, how)
	if errors.Is(why, identity.ErrNone) {
		article := "a"
		if strings.ContainsRune("AEIO", rune(words.name[0])) {
			article = "an"
		}
		text = fmt.Sprintf("This request needs %s %s. %s", article, words.name, how)
	}
	return &variant{text: text}
}

// challenge returns the WWW-Authenticate of a 401: a challenge for each place where the credential
// may be (RFC 9110, section 11.6.1; RFC 6750). No scheme is registered for client certificates.
func (j *Judge) challenge(source string, why error) string {
	if source == identity.Cert {
		return `ClientCertificate realm="cert"`
	}
	problem := "invalid_token"
	if errors.Is(why, identity.ErrNone) {
		problem = ""
	}
	places := []identity.Place{{}} // sessions are in Authorization: Bearer
	if source == identity.Token {
		places = j.options.Identity.TokenPlaces()
	}
	challenges := make([]string, len(places))
	for i, p := range places {
		challenges[i] = p.Challenge(source, problem)
	}
	return strings.Join(challenges, ", ")
}
