package policyfile

import (
	"maps"
	"slices"
	"strings"

	"golang.org/x/text/language"

	"github.com/weirlimit/weir"
)

// These types define the fields of the responses of a policy.

type answers struct {
	Format          format          `json:"format,omitempty" like:"problem" jsonschema:"The form of every error: error (the default), an error object with a code and a message, or a problem document for callers that prefer one; or problem, a problem document (RFC 9457) for every caller."`
	Refused         answer          `json:"refused,omitempty" like:"{message: slow-down}" jsonschema:"How a request over a limit is answered. The status is 429 (the default), 403 or 503."`
	Unauthenticated unauthenticated `json:"unauthenticated,omitempty" like:"{message: need-key}" jsonschema:"How a request is answered that lacks the credential which its limiter requires. The status is 401 (the default), 403 or 404."`
	Unavailable     answer          `json:"unavailable,omitempty" like:"{message: try-later}" jsonschema:"How a request is answered that cannot be counted (on_store_failure: deny). The status is 503 (the default), 500, 502 or 504."`
}

type answer struct {
	Status  status           `json:"status,omitempty" like:"429" jsonschema:"The HTTP status."`
	Message message          `json:"message,omitempty" like:"slow-down" jsonschema:"The name of the text: one of messages."`
	Fields  map[string]value `json:"fields,omitempty" like:"{X-Support: https://example.com/limits}" jsonschema:"More fields of the response, by name."`
}

type unauthenticated struct {
	Status      status             `json:"status,omitempty" like:"401" jsonschema:"The HTTP status."`
	Message     message            `json:"message,omitempty" like:"need-key" jsonschema:"The name of the text: one of messages."`
	Credentials map[string]message `json:"credentials,omitempty" like:"{token: need-key}" jsonschema:"The names of the texts for the lack of one credential: session, token or cert. They have priority over message."`
	Fields      map[string]value   `json:"fields,omitempty" like:"{X-Support: https://example.com/keys}" jsonschema:"More fields of the response, by name."`
}

type (
	text   string
	texts  map[string]text
	value  string
	format string
	status int64
)

// responses converts the responses of doc.
func (d *reading) responses(doc *document) (w weir.Responses) {
	for _, name := range slices.Sorted(maps.Keys(doc.Messages)) {
		spelled := doc.Messages[name]
		if w.Messages == nil {
			w.Messages = make(map[string]weir.Texts, len(doc.Messages))
		}
		w.Messages[name] = plainTexts(spelled)
		d.checkBuiltIn(name, spelled)
		for _, tag := range slices.Sorted(maps.Keys(spelled)) {
			d.language(within(within("messages", name), tag), tag)
		}
	}
	a := &doc.Answers
	if at := "answers.format"; d.written(at) {
		f, err := weir.ParseFormat(string(a.Format))
		if err != nil {
			d.fail(at, string(a.Format), didYouMean(string(a.Format), []string{"error", "problem"}), "%v", err)
		}
		w.Answers.Format = f
	}
	u := &a.Unauthenticated
	w.Answers.Refused = d.answer("answers.refused", &a.Refused)
	w.Answers.Unauthenticated = d.answer("answers.unauthenticated", &answer{u.Status, u.Message, u.Fields})
	w.Answers.Unavailable = d.answer("answers.unavailable", &a.Unavailable)
	for _, source := range slices.Sorted(maps.Keys(u.Credentials)) {
		d.messageName(within("answers.unauthenticated.credentials", source), string(u.Credentials[source]))
	}
	w.Answers.Unauthenticated.Credentials = plainTexts(u.Credentials)
	return w
}

func (d *reading) answer(path string, a *answer) weir.Answer {
	if at := path + ".status"; d.written(at) && a.Status == 0 {
		d.fail(at, "0", "leave it out for the default", "status 0 is not an HTTP status")
	}
	d.messageName(path+".message", string(a.Message))
	return weir.Answer{Status: int(a.Status), Message: string(a.Message), Fields: plainTexts(a.Fields)}
}

// plainTexts returns m with plain texts; nil if it is empty.
func plainTexts[S ~string](m map[string]S) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = string(v)
	}
	return out
}

// language reports a tag of the right form whose language or region is not registered. Package weir
// reports the others.
func (d *reading) language(path, tag string) {
	if d.failed[path] {
		return
	}
	_, err := language.Parse(tag)
	if _, unknown := err.(language.ValueError); unknown {
		d.fail(path, tag, "", "language %q is not registered: a BCP 47 tag is needed, such as en, de or pt-BR", excerpt(tag))
	}
}

// messageName reports a name of a message at path that no message has.
func (d *reading) messageName(path, name string) {
	switch known := d.messages; {
	case !d.written(path):
	case known != nil && !slices.Contains(known, name):
		hint := didYouMean(name, known)
		if hint == "" {
			hint = "to use a text of your own, put it under messages by a name, and give the name here"
		}
		d.fail(path, name, hint, "message %q is unknown: %s are allowed", excerpt(name), strings.Join(known, ", "))
	case !wellFormed.MatchString(name):
		d.fail(path, name, "give the name of a text under messages, not the text itself", "message %q: lower-case letters, digits and dashes are allowed, a letter first, at most 64 characters", excerpt(name))
	}
}

// checkBuiltIn fails for a text that replaces a built-in one, which refusals have, and is made for
// another answer.
func (d *reading) checkBuiltIn(name string, spelled texts) {
	if !slices.Contains(d.reader.Messages, name) {
		return
	}
	for _, tag := range slices.Sorted(maps.Keys(spelled)) {
		parts, _ := weir.ParseText(string(spelled[tag]))
		for _, part := range parts {
			if part.Placeholder == weir.PlaceReason {
				d.fail(within(within("messages", name), tag), string(spelled[tag]), "put it under a name of its own, and give that name in answers.unauthenticated",
					"message %q is for refused requests, and {%s} has a value only in an answer to a request that is unauthenticated", name, part.Placeholder)
			}
		}
	}
}

// knownMessages returns the names that a message may have here, sorted; nil allows any.
func (d *reading) knownMessages(doc *document) []string {
	if d.reader.Messages == nil {
		return nil
	}
	known := slices.Clone(d.reader.Messages)
	for name := range doc.Messages {
		if wellFormed.MatchString(name) {
			known = append(known, name)
		}
	}
	slices.Sort(known)
	return slices.Compact(known)
}
