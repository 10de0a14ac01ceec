package verify

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// shownBody is how many bytes of a body an Exchange shows.
const shownBody = 2 << 10

// Secrets are the credentials that no report may show. They are safe for concurrent use.
type secrets struct {
	sessionAt string // the JSON path of a session's token in an answer; "": none

	mu     sync.Mutex
	values []string // the longest first, so no part of one remains
}

func (s *secrets) add(values ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range values {
		if v != "" && !slices.Contains(s.values, v) {
			s.values = append(s.values, v)
		}
	}
	slices.SortStableFunc(s.values, func(a, b string) int { return len(b) - len(a) })
}

// addField adds the value of a field that every request has, and its parts: a scheme and a
// credential, or cookies. A short value is not a secret, and would be removed from everything.
func (s *secrets) addField(name, value string) {
	const short = 4
	if !isSecretField(name) {
		if len(value) > 2*short {
			s.add(value)
		}
		return
	}
	parts := strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" ;,\"", r) })
	for _, part := range append(parts, value) {
		if len(part) > short {
			s.add(part)
		}
		if _, cookie, ok := strings.Cut(part, "="); ok && len(cookie) > short {
			s.add(cookie)
		}
	}
}

// addCredential adds a credential, and the part of it that altered ones share.
func (s *secrets) addCredential(credential string) {
	s.add(credential)
	if start := credential[:secretAt(credential)]; len(start) >= 8 {
		s.add(start)
	}
}

// credentialLike matches what looks like a JWT or an API token of Weir.
var credentialLike = regexp.MustCompile(`eyJ[\w-]{5,}\.[\w-]+\.[\w-]*|wpt_\w{8,}`)

// hide removes credentials from a text.
func (s *secrets) hide(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.values {
		text = strings.ReplaceAll(text, v, "[left out]")
	}
	return credentialLike.ReplaceAllString(text, "[left out]")
}

// secretNames are parts of field names whose values are always removed.
var secretNames = []string{"authoriz", "cookie", "key", "token", "session", "secret", "password"}

func isSecretField(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(secretNames, func(part string) bool { return strings.Contains(name, part) })
}

// shown returns an exchange without credentials. own are the caller's fields in every request.
func (s *secrets) shown(a *answer, own http.Header, base string) *Exchange {
	if s.sessionAt != "" && len(a.body) > 0 {
		if token, err := tokenIn(a.body, s.sessionAt); err == nil && len(token) >= 8 {
			s.addCredential(token)
		}
	}
	var q strings.Builder
	path, query, _ := strings.Cut(a.request.path, "?")
	fmt.Fprintf(&q, "%s %s%s\n", a.request.method, base, joined(path, "?", joined(query, "&", a.request.query)))
	if a.request.host != "" {
		fmt.Fprintf(&q, "Host: %s\n", a.request.host)
	}
	lines := make(http.Header)
	for name := range own {
		lines.Set(name, "[left out]")
	}
	for name, value := range a.request.fields {
		if value == "" {
			lines.Del(name)
			continue
		}
		lines.Set(name, value)
	}
	for name := range a.request.lines {
		lines.Del(name)
	}
	for name, values := range a.request.lines {
		lines[name] = values
	}
	writeFields(&q, lines)
	if a.request.body != "" {
		fmt.Fprintf(&q, "\n%s", a.request.body)
	}
	var r strings.Builder
	fmt.Fprintf(&r, "%s %d %s\n", a.proto, a.status, http.StatusText(a.status))
	writeFields(&r, a.header)
	if len(a.body) > 0 {
		body := a.body[:min(len(a.body), shownBody)]
		fmt.Fprintf(&r, "\n%s", strings.ToValidUTF8(string(body), "�"))
		if len(a.body) > shownBody {
			r.WriteString("…")
		}
	}
	return &Exchange{
		Request:  s.hide(strings.TrimSuffix(q.String(), "\n")),
		Response: s.hide(strings.TrimSuffix(r.String(), "\n")),
		At:       a.at.UTC().Format("2006-01-02T15:04:05.000Z07:00"),
	}
}

func writeFields(to *strings.Builder, h http.Header) {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range h[name] {
			if isSecretField(name) {
				value = "[left out]"
			}
			fmt.Fprintf(to, "%s: %s\n", wireName(name), value)
		}
	}
}

// wireName returns the usual spelling of a field's name. net/http spells the contract's fields
// differently.
func wireName(name string) string {
	for _, known := range append(standing(), "X-Weir-Denial") {
		if strings.EqualFold(name, known) {
			return known
		}
	}
	return name
}

// seconds formats a duration: above one second in tenths, below in milliseconds.
func seconds(d time.Duration) string {
	if d > time.Second {
		d = d.Round(time.Second / 10)
	}
	return d.Round(time.Millisecond).String()
}
