package weir

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// checkResponses checks the responses of the policy. It does not know the messages of a front door,
// so a name that no message has is not a problem here.
func (c *checker) checkResponses(p *Policy) {
	c.limiter = -1
	if len(p.Messages) > MaxMessages {
		c.add("messages", -1, "", "%d messages: at most %d are allowed", len(p.Messages), MaxMessages)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(p.Messages)) {
		c.checkMessage(name, p.Messages[name])
	}
	if p.Answers.Format > FormatProblem {
		c.add("answers.format", -1, p.Answers.Format.String(), "format %v is unknown: error and problem are allowed", p.Answers.Format)
	}
	for _, a := range p.Answers.all() {
		c.checkAnswer(p, a)
	}
	for i := range p.Limiters {
		c.limiter = i
		c.checkPlaceholders(p, "message", p.Limiters[i].Message, "refused")
	}
}

func (c *checker) checkMessage(name string, texts Texts) {
	path := "messages." + name
	if !isName(name) {
		c.add(path, -1, name, "message name %q: lower-case letters, digits and dashes are allowed, a letter first, at most 64 characters", name)
		return
	}
	if len(texts) > MaxLanguages {
		c.add(path, -1, "", "message %q has %d languages: at most %d are allowed", name, len(texts), MaxLanguages)
		return
	}
	if _, ok := texts[English]; !ok {
		c.add(path, -1, "", "message %q has no English text, which is for callers that ask for no language of the message: add en: …", name)
	}
	tags := make(map[string]string, len(texts))
	for _, tag := range slices.Sorted(maps.Keys(texts)) {
		at := path + "." + tag
		if !isLanguage(tag) {
			c.add(at, -1, tag, "language %.40q: a BCP 47 tag is needed, such as en, de or pt-BR", tag)
			continue
		}
		if other, taken := tags[strings.ToLower(tag)]; taken {
			c.add(at, -1, tag, "language %q is %q again: letter case makes no difference", tag, other)
		}
		tags[strings.ToLower(tag)] = tag
		if wrong := textProblem(texts[tag]); wrong != "" {
			c.add(at, -1, "", "message %q in %q %s", name, tag, wrong)
		}
	}
}

// isLanguage reports whether s has the form of a language tag (RFC 5646, section 2.1).
func isLanguage(s string) bool {
	if len(s) > 35 {
		return false
	}
	for i, part := range strings.Split(s, "-") {
		if len(part) < 1 || len(part) > 8 || i == 0 && len(part) < 2 {
			return false
		}
		for _, r := range part {
			letter := 'a' <= r|0x20 && r|0x20 <= 'z'
			if !letter && (i == 0 || r < '0' || r > '9') {
				return false
			}
		}
	}
	return true
}

// textProblem returns what is wrong with a text, or "".
func textProblem(s string) string {
	switch {
	case strings.TrimSpace(s) == "":
		return "is empty: write the text, or remove the language"
	case len(s) > MaxText:
		return fmt.Sprintf("is %d bytes long: at most %d are allowed", len(s), MaxText)
	case !utf8.ValidString(s):
		return "is not UTF-8"
	}
	for _, r := range s {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return fmt.Sprintf("has the control character %U: a text is one line of visible characters", r)
		}
	}
	if _, err := ParseText(s); err != nil {
		return fmt.Sprintf("cannot be used: %v", err)
	}
	return ""
}

func (c *checker) checkAnswer(p *Policy, a namedAnswer) {
	c.limiter = -1
	path := "answers." + a.field
	if s := a.answer.Status; s != 0 && !slices.Contains(a.statuses, s) {
		c.add(path+".status", -1, fmt.Sprint(s), "status %d is not allowed for %s: %s are allowed, %d is the default", s, a.field, joinInts(a.statuses), a.statuses[0])
	}
	c.checkPlaceholders(p, path+".message", a.answer.Message, a.field)
	for _, source := range slices.Sorted(maps.Keys(a.answer.Credentials)) {
		at := path + ".credentials." + source
		switch {
		case a.field != "unauthenticated":
			c.add(at, -1, source, "%s has no texts for each credential: only unauthenticated has", a.field)
		case !slices.Contains(Credentials(), source): // what requires can name
			c.add(at, -1, source, "%q is not a credential: %s are allowed", source, strings.Join(Credentials(), ", "))
		default:
			c.checkPlaceholders(p, at, a.answer.Credentials[source], a.field)
		}
	}
	if len(a.answer.Fields) > MaxFields {
		c.add(path+".fields", -1, "", "%d fields: at most %d are allowed", len(a.answer.Fields), MaxFields)
		return
	}
	seen := make(map[string]string, len(a.answer.Fields))
	for _, name := range slices.Sorted(maps.Keys(a.answer.Fields)) {
		at := path + ".fields." + name
		if wrong := fieldProblem(name, a.answer.Fields[name]); wrong != "" {
			c.add(at, -1, "", "%s", wrong)
		}
		if other, taken := seen[strings.ToLower(name)]; taken {
			c.add(at, -1, name, "field %q is %q again: letter case makes no difference", name, other)
		}
		seen[strings.ToLower(name)] = name
	}
}

func joinInts(all []int) string {
	var texts []string
	for _, n := range slices.Sorted(slices.Values(all)) {
		texts = append(texts, fmt.Sprint(n))
	}
	return strings.Join(texts, ", ")
}

// checkPlaceholders checks that the message with that name can be used for an answer.
func (c *checker) checkPlaceholders(p *Policy, at, message, answer string) {
	texts := p.Messages[message]
	for _, tag := range slices.Sorted(maps.Keys(texts)) {
		parts, _ := ParseText(texts[tag])
		for _, part := range parts {
			for _, known := range placeholders {
				if known.name == part.Placeholder && known.only != "" && known.only != answer {
					c.add(at, -1, message, "message %q has the placeholder {%s}, which has a value only in an answer to a request that is %s", message, known.name, known.only)
					return
				}
			}
		}
	}
}

// ownFields are the fields that a front door sets itself, and those about the connection or the
// browser's rights, in lower case. Names that begin with one of ownPrefixes are too.
var (
	ownFields = map[string]bool{
		"date": true, "retry-after": true, "ratelimit": true, "ratelimit-policy": true, "x-weir-denial": true,
		"cache-control": true, "vary": true, "www-authenticate": true, "set-cookie": true, "allow": true, "host": true,
		"connection": true, "keep-alive": true, "proxy-connection": true, "te": true, "trailer": true,
		"transfer-encoding": true, "upgrade": true, "expect": true,
	}
	ownPrefixes = []string{"x-ratelimit-", "content-", "access-control-", "proxy-"}
)

// fieldProblem returns what is wrong with a field of an answer, or "".
func fieldProblem(name, value string) string {
	if name == "" || len(name) > maxField || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Sprintf("field name %.80q: letters, digits and dashes are allowed, at most %d", name, maxField)
	}
	lower := strings.ToLower(name)
	if ownFields[lower] || slices.ContainsFunc(ownPrefixes, func(p string) bool { return strings.HasPrefix(lower, p) }) {
		return fmt.Sprintf("field %q cannot be added: it is set by the limiter or belongs to the connection; choose a name of your own, such as X-Support", name)
	}
	if value == "" || len(value) > MaxText || strings.Trim(value, " ") != value {
		return fmt.Sprintf("the value of field %q: 1 to %d bytes are allowed, without blanks at its ends", name, MaxText)
	}
	for _, c := range []byte(value) {
		if c < ' ' || c > '~' {
			return fmt.Sprintf("the value of field %q has the byte %#02x: visible ASCII characters and blanks are allowed", name, c)
		}
	}
	return ""
}
