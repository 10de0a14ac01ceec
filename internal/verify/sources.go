package verify

import (
	"slices"

	"github.com/weirlimit/weir"
)

// The names of the key sources whose values a caller knows.
const (
	sourceIP       = "ip"
	sourceAgent    = "agent"
	sourceSession  = "session"
	sourceToken    = "token"
	sourceEveryone = "everyone"
)

// kindInWords are the kinds of credentials in words.
var kindInWords = map[string]string{sourceSession: "session token", sourceToken: "API token"}

// countedBy returns the sources that a key counts a caller by, one for each part. has reports
// whether the caller has a source.
func countedBy(k weir.Key, has func(source string) bool) []string {
	var by []string
	for _, part := range k {
		source := sourceIP
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

// credentialOf returns the kind of credential that a limiter's windows count by, or "".
func credentialOf(l *weir.Limiter) string {
	for _, source := range []string{sourceSession, sourceToken} {
		for _, w := range l.Windows {
			if w.Key.Uses(source) {
				return source
			}
		}
	}
	return ""
}

// strangeSource returns a source whose value a caller cannot know, or "".
func strangeSource(l *weir.Limiter) string {
	known := []string{sourceIP, sourceAgent, sourceSession, sourceToken, sourceEveryone}
	for _, w := range l.Windows {
		for _, part := range w.Key {
			for _, s := range part {
				if !slices.Contains(known, s) {
					return s
				}
			}
		}
	}
	return ""
}
