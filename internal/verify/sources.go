package verify

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// The key sources whose values the verifier obtains or makes up, each in a way of its own. For all
// others it goes by the table of sources.
const (
	sourceAgent   = "agent"
	sourceSession = "session"
	sourceToken   = "token"
	sourceHeader  = "header" // with the name of a field
	sourcePath    = "path"   // with the name of a parameter
	sourceCookie  = "cookie" // with its name
	sourceQuery   = "query"  // with the name of a parameter
	sourceHost    = "host"
)

// kindInWords are the kinds of credentials in words.
var kindInWords = map[string]string{sourceSession: "session token", sourceToken: "API token"}

func kindOf(source string) weir.SourceKind { return weir.SourceOf(source).Kind }

// sourceOfKind returns the first source of a kind that the table has.
func sourceOfKind(kind weir.SourceKind) string {
	all := weir.Sources()
	return all[slices.IndexFunc(all, func(s weir.Source) bool { return s.Kind == kind })].Name
}

// countedBy returns the sources that a key counts a caller by, one for each part. has reports
// whether the caller has a source.
func countedBy(k weir.Key, has func(source string) bool) []string {
	var by []string
	for _, part := range k {
		source := sourceOfKind(weir.Address)
		for _, s := range part {
			if has(s) {
				source = s
				break
			}
		}
		by = append(by, source)
	}
	return by
}

// credentialOf returns the kind of credential that a limiter requires or that its windows count by,
// or "". A claim is counted by a session.
func credentialOf(l *weir.Limiter) string {
	if l.Requires != "" {
		return l.Requires
	}
	for _, kind := range []string{sourceSession, sourceToken} {
		if slices.ContainsFunc(sourcesOf(l), func(s string) bool { return weir.SourceOf(s).Credential() == kind }) {
			return kind
		}
	}
	return ""
}

// sourcesOf returns the key sources that a limiter's windows name, each once.
func sourcesOf(l *weir.Limiter) (all []string) {
	for _, w := range l.Rows() {
		for _, part := range w.Key {
			for _, source := range part {
				if !slices.Contains(all, source) {
					all = append(all, source)
				}
			}
		}
	}
	return all
}

// hasValue reports whether a source is a value that the verifier can write into a request, other
// than the agent.
func hasValue(source string) bool {
	switch name, _ := weir.SplitSource(source); name {
	case sourceHeader, sourcePath, sourceCookie, sourceQuery, sourceHost:
		return true
	}
	return false
}

// namesIn returns the names after the colon of one source that a limiter's windows count by: the
// fields of header.
func namesIn(l *weir.Limiter, source string) (all []string) {
	for _, s := range sourcesOf(l) {
		if base, name := weir.SplitSource(s); base == source {
			all = append(all, name)
		}
	}
	return all
}

// strangeSource returns why a limiter cannot be tested because of what it counts by, or "".
func (o *Options) strangeSource(l *weir.Limiter) string {
	if l.Requires != "" && kindInWords[l.Requires] == "" {
		return fmt.Sprintf("it requires %q, which the verifier cannot vary", l.Requires)
	}
	for _, source := range sourcesOf(l) {
		row, known := weir.FindSource(weir.Sources(), source)
		name, field := weir.SplitSource(source)
		switch {
		case !known:
			return fmt.Sprintf("it counts by %q, whose value a caller cannot know", source)
		case row.Kind == weir.Credential && kindInWords[row.Credential()] == "":
			return fmt.Sprintf("it counts by %q, which the verifier cannot vary", source)
		case row.Kind == weir.Chosen && name != sourceAgent && !hasValue(source):
			return fmt.Sprintf("it counts by %q, and the verifier cannot vary that", source)
		case name == sourceHeader && isOwnField(field):
			return fmt.Sprintf("it counts by %q, a field that the verifier varies for other clauses", source)
		case name == sourceHeader && field == "Cookie" && len(namesIn(l, sourceCookie)) > 0:
			return fmt.Sprintf("it counts by %q and by one cookie of it, which cannot be varied apart", source)
		case slices.ContainsFunc(o.TokenPlaces, func(p identity.Place) bool { return isIn(p, source) }):
			return fmt.Sprintf("it counts by %q, which is where requests have their API token", source)
		}
	}
	return ""
}

// isIn reports whether a source is what an API token is read from.
func isIn(p identity.Place, source string) bool {
	name, field := weir.SplitSource(source)
	return name == sourceHeader && field == p.Field() && field != "" || name == sourceQuery && field == p.Parameter() && field != ""
}

// isOwnField reports whether clauses set a field to values of their own, so that its value cannot
// name a caller.
func isOwnField(field string) bool {
	switch field {
	case "Accept-Language", "Authorization", "Content-Type", "Origin", "User-Agent", "X-Agent-Id",
		"X-Http-Method-Override", "X-Original-Url", "X-Rewrite-Url":
		return true
	}
	return strings.HasPrefix(field, "Access-Control-") ||
		slices.ContainsFunc(forwardedFields, func(c claim) bool { return http.CanonicalHeaderKey(c.name) == field })
}
