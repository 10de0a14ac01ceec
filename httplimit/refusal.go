package httplimit

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/weirlimit/weir/identity"
)

// A refusal is an answer of our own but for the fields of its window: made once, shared by all who get it.
type refusal struct {
	body   []byte
	fields []Field
}

func newRefusal(code, message string, more ...Field) refusal {
	body := errorBody(code, message)
	return refusal{body, append([]Field{
		{"Content-Type", "application/json"},
		{"Cache-Control", "no-store"},
		{"Content-Length", strconv.Itoa(len(body))},
	}, more...)}
}

// refusals are one message's 429s (D20), in the order of languages.
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
func (m *Middleware) refusal(message string, req identity.Request) *refusal {
	texts := m.refusals[message]
	if texts == nil {
		texts = m.refusals[generalMessage]
	}
	return &texts[m.speaks.language(req.Header("Accept-Language"))]
}

// unavailable is what FailDeny answers (D25): no Retry-After, since nobody knows.
var unavailable = newRefusal("store_unavailable", "Requests cannot be counted at the moment, so this one was not served. Please try again soon.")

// unreadable is the answer to a credential of which nobody knows at the moment whether it is good.
var unreadable = newRefusal("store_unavailable", "Credentials cannot be checked at the moment, so this request was not served. Please try again soon.")

// obtain says how to get each credential, and what it is called.
var obtain = map[string]string{
	identity.Session: `POST /api/v1/widget/init answers one as "token"; send it as Authorization: Bearer <token>.`,
	identity.Token:   "Whoever runs this service creates one (weir token create --workspace NAME); send it as Authorization: Bearer <token>.",
}

var credentialNames = map[string]string{
	identity.Session: "visitor session",
	identity.Token:   "workspace API token",
}

// unauthenticated returns the 401 of a credential that is missing or does not verify (D16). The challenge is RFC 6750's.
func (m *Middleware) unauthenticated(source string, why error) *refusal {
	var r refusal
	name, how := credentialNames[source], m.options.credential(source)
	switch {
	case errors.Is(why, identity.ErrNone):
		r = newRefusal("unauthenticated", fmt.Sprintf("This request needs a %s. %s", name, how),
			Field{"WWW-Authenticate", `Bearer realm="` + source + `"`})
	default:
		r = newRefusal("unauthenticated", fmt.Sprintf("The %s was not accepted: %v. %s", name, why, how),
			Field{"WWW-Authenticate", `Bearer realm="` + source + `", error="invalid_token"`})
	}
	return &r
}

func (o *Options) credential(source string) string {
	if text, ok := o.Credentials[source]; ok {
		return text
	}
	return obtain[source]
}
