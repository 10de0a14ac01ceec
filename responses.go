package weir

import (
	"fmt"
	"maps"
	"strings"
)

// Responses declares the responses to requests that end at a limiter: a refusal, a missing
// credential, a store that does not answer. The zero value leaves them to the front door.
type Responses struct {
	Messages map[string]Texts // by name
	Answers  Answers
}

// Texts are one message in several languages, by BCP 47 tag, such as "de" or "pt-BR". "en" is
// required: it is for callers that ask for no language of the message. Each is one line of 1 to
// MaxText bytes, in which placeholders stand for values of the request (see ParseText).
type Texts map[string]string

// English is the language that every message has.
const English = "en"

// Answers are how requests are answered that end at a limiter. The zero value is the default of the
// front door: the contract's.
type Answers struct {
	// Format is the form of every error that the front door sends.
	Format Format

	// Refused is for requests over the limit. The status is 403, 429 or 503, by default 429.
	Refused Answer
	// Unauthenticated is for requests that lack the credential which their limiter requires. The
	// status is 401, 403 or 404, by default 401.
	Unauthenticated Answer
	// Unavailable is for requests that cannot be counted (FailDeny). The status is 500, 502, 503 or
	// 504, by default 503.
	Unavailable Answer
}

// An Answer is how requests of one outcome are answered. The zero value is the default.
type Answer struct {
	Status  int    // 0 means the default of the outcome
	Message string // the name of the text; empty means the default of the front door

	// Credentials are the names of texts for the lack of one credential, by its key source. They
	// have priority over Message. Only Answers.Unauthenticated may have them.
	Credentials map[string]string

	// Fields are more fields of the response, by name. They cannot be those that the front door
	// sets itself.
	Fields map[string]string
}

// A Format is the form of an error's body.
type Format uint8

const (
	// FormatError is the contract's error object. A caller that prefers problem documents gets one.
	FormatError Format = iota
	// FormatProblem is a problem document (RFC 9457) for every caller.
	FormatProblem
)

// String returns the format as a policy file spells it: "error" or "problem".
func (f Format) String() string {
	switch f {
	case FormatError:
		return "error"
	case FormatProblem:
		return "problem"
	}
	return fmt.Sprintf("Format(%d)", uint8(f))
}

// ParseFormat reads a format as a policy file spells it: "error" or "problem".
func ParseFormat(s string) (Format, error) {
	for f := FormatError; f <= FormatProblem; f++ {
		if s == f.String() {
			return f, nil
		}
	}
	return 0, fmt.Errorf("format %q is unknown: error and problem are allowed", s)
}

// The bounds of a policy's words.
const (
	MaxMessages  = 100  // messages
	MaxLanguages = 50   // languages of one message
	MaxText      = 1024 // bytes of one text, and of the value of a field
	MaxFields    = 20   // fields of one answer
)

// MessageOf returns the name of the message for requests that l refuses: l's own, or else that of
// Answers.Refused; empty means the default of the front door.
func (w *Responses) MessageOf(l *Limiter) string {
	if l.Message != "" {
		return l.Message
	}
	return w.Answers.Refused.Message
}

// A TextPart is a part of a text: a literal, or the name of a placeholder. One of the two is empty.
type TextPart struct{ Literal, Placeholder string }

// The placeholders of texts.
const (
	PlaceLimiter    = "limiter"     // the name of the limiter
	PlaceLimit      = "limit"       // the limit of the binding window
	PlaceRetryAfter = "retry_after" // the seconds after which a refused request fits
	PlaceReset      = "reset"       // the time at which the window ends: RFC 3339, UTC
	PlaceReason     = "reason"      // why a credential was not accepted, in English
)

// placeholders are all placeholders, and the answers whose texts may have them.
var placeholders = []struct {
	name string
	only string // the field of Answers; empty: all
}{
	{PlaceLimiter, ""},
	{PlaceLimit, ""},
	{PlaceRetryAfter, "refused"},
	{PlaceReset, "refused"},
	{PlaceReason, "unauthenticated"},
}

// ParseText splits a text at its placeholders: {limiter}, {limit}, {retry_after}, {reset} and
// {reason}. It returns an error if the text has another brace.
func ParseText(s string) ([]TextPart, error) {
	var parts []TextPart
	for s != "" {
		at := strings.IndexAny(s, "{}")
		if at < 0 {
			return append(parts, TextPart{Literal: s}), nil
		}
		if at > 0 {
			parts = append(parts, TextPart{Literal: s[:at]})
		}
		name, rest, closed := strings.Cut(s[at+1:], "}")
		if s[at] == '}' || !closed || !isPlaceholder(name) {
			found := s[at:]
			if s[at] == '{' && closed {
				found = "{" + name + "}"
			}
			return nil, fmt.Errorf("%.40q is not a placeholder: %s are allowed, and no other braces", found, placeholderNames())
		}
		parts, s = append(parts, TextPart{Placeholder: name}), rest
	}
	return parts, nil
}

func isPlaceholder(name string) bool {
	for _, p := range placeholders {
		if p.name == name {
			return true
		}
	}
	return false
}

func placeholderNames() string {
	var all []string
	for _, p := range placeholders {
		all = append(all, "{"+p.name+"}")
	}
	return strings.Join(all, ", ")
}

// clone returns a deep copy.
func (w Responses) clone() Responses {
	if w.Messages != nil {
		messages := make(map[string]Texts, len(w.Messages))
		for name, texts := range w.Messages {
			messages[name] = maps.Clone(texts)
		}
		w.Messages = messages
	}
	for _, a := range w.Answers.all() {
		a.answer.Credentials, a.answer.Fields = maps.Clone(a.answer.Credentials), maps.Clone(a.answer.Fields)
	}
	return w
}

// A namedAnswer is one of the Answers, with what it may be.
type namedAnswer struct {
	field    string // as a policy file spells it
	answer   *Answer
	statuses []int // the default first
}

// all returns the answers in the order of a policy file.
func (a *Answers) all() []namedAnswer {
	return []namedAnswer{
		{"refused", &a.Refused, []int{429, 403, 503}},
		{"unauthenticated", &a.Unauthenticated, []int{401, 403, 404}},
		{"unavailable", &a.Unavailable, []int{503, 500, 502, 504}},
	}
}
