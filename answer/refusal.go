package answer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/identity"
)

// A refusal is the part of an answer that does not depend on its window. It is built once and
// shared by all answers of its kind.
type refusal struct {
	body   []byte
	fields []Field
}

func newRefusal(code, message string, more ...Field) refusal {
	body := ErrorBody(code, message)
	return refusal{body, append([]Field{
		{"Content-Type", "application/json"},
		{"Cache-Control", "no-store"},
		{"Content-Length", strconv.Itoa(len(body))},
	}, more...)}
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
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(body) // encoding two strings cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// refusals are the 429s of one message (D20), in the order of languages.
type refusals [languageCount]refusal

func newRefusals() map[string]*refusals {
	all := make(map[string]*refusals, len(catalogue))
	for name, texts := range catalogue {
		r := new(refusals)
		for i, text := range texts {
			r[i] = newRefusal("rate_limited", text, Field{"Content-Language", languages[i].String()}, Field{"Vary", "Accept-Language"})
		}
		all[name] = r
	}
	return all
}

// refusal returns the 429 of a message in the language that the request asks for.
func (j *Judge) refusal(message string, q *Question) *refusal {
	texts := j.refusals[message]
	if texts == nil {
		texts = j.refusals[generalMessage]
	}
	lines := q.Languages
	if q.Caller != nil {
		lines = q.Caller.Request().Header("Accept-Language")
	}
	return &texts[j.languages.index(lines)]
}

// unavailable is the 503 of FailDeny (D25). It has no Retry-After, because the end of the outage is
// unknown.
var unavailable = newRefusal("store_unavailable", "Requests cannot be counted at the moment, so this one was not served. Please try again soon.")

// unreadable is the 503 for a credential whose validity cannot be determined now.
var unreadable = newRefusal("store_unavailable", "Credentials cannot be checked at the moment, so this request was not served. Please try again soon.")

// obtain are the sentences on how to get a credential, for sources that Options.Credentials lacks.
var obtain = map[string]string{
	identity.Session: `POST /api/v1/widget/init returns one as "token"; send it as Authorization: Bearer <token>.`,
	identity.Token:   "The operator of this service creates one (weir token create --workspace NAME); send it as Authorization: Bearer <token>.",
}

var credentialNames = map[string]string{
	identity.Session: "visitor session",
	identity.Token:   "workspace API token",
}

// unauthenticated returns the 401 for a credential that is missing or invalid (D16), with a
// challenge for each place where it may be (RFC 9110, section 11.6.1).
func (j *Judge) unauthenticated(source string, why error) *refusal {
	how, ok := j.options.Credentials[source]
	if !ok {
		how = obtain[source]
	}
	message := fmt.Sprintf("The %s was not accepted: %v. %s", credentialNames[source], why, how)
	problem := "invalid_token"
	if errors.Is(why, identity.ErrNone) {
		message = fmt.Sprintf("This request needs a %s. %s", credentialNames[source], how)
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
	r := newRefusal("unauthenticated", message, Field{"WWW-Authenticate", strings.Join(challenges, ", ")})
	return &r
}
