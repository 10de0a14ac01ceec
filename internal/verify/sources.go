package verify

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
)

// The key sources whose values the verifier obtains or makes up, each in a way of its own. For all
// others it goes by the table of sources.
const (
	sourceAgent   = "agent"
	sourceSession = "session"
	sourceToken   = "token"
	sourceHeader  = "header" // with the name of a field
	sourcePath    = "path"   // with the name of a parameter
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
// or "".
func credentialOf(l *weir.Limiter) string {
	if l.Requires != "" {
		return l.Requires
	}
	for _, source := range []string{sourceSession, sourceToken} {
		for _, w := range l.Windows {
			if w.Key.Uses(source) {
				return source
			}
		}
	}
	return ""
}

// sourcesOf returns the key sources that a limiter's windows name.
func sourcesOf(l *weir.Limiter) (all []string) {
	for _, w := range l.Windows {
		for _, part := range w.Key {
			all = append(all, part...)
		}
	}
	return all
}

// fieldsOf returns the HTTP fields whose values a limiter counts by.
func fieldsOf(l *weir.Limiter) (all []string) {
	for _, source := range sourcesOf(l) {
		if name, field := weir.SplitSource(source); name == sourceHeader && !slices.Contains(all, field) {
			all = append(all, field)
		}
	}
	return all
}

// strangeSource returns why a limiter cannot be tested because of what it counts by, or "".
func strangeSource(l *weir.Limiter) string {
	for _, source := range sourcesOf(l) {
		name, field := weir.SplitSource(source)
		switch name {
		case sourceAgent, sourceSession, sourceToken, sourceHeader:
		case sourcePath:
			return fmt.Sprintf("it counts by %q, and the verifier does not vary the path", source)
		default:
			switch row, known := weir.FindSource(weir.Sources(), source); {
			case !known:
				return fmt.Sprintf("it counts by %q, whose value a caller cannot know", source)
			case row.Kind == weir.Chosen:
				return fmt.Sprintf("it counts by %q, and the verifier cannot vary that", source)
			case row.From != "":
				return fmt.Sprintf("it counts by %q, and the verifier does not know the claims of a %s", source, row.From)
			}
		}
		if isOwnField(field) {
			return fmt.Sprintf("it counts by %q, a field that the verifier varies for other clauses", source)
		}
	}
	return ""
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
