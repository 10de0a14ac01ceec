package verify

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weirlimit/weir"
)

// valueIn returns what a source reads from a credential: the credential itself, or a claim of a
// JWT, which is not verified here: the deployment does that. It is "" if there is no such claim.
func valueIn(credential, source string) string {
	if weir.SourceOf(source).From == "" {
		return credential
	}
	_, name := weir.SplitSource(source)
	return claimText(partOf(credential, 1), name)
}

// sameValue reports whether a source reads the same from two credentials. The same claim of two
// issuers is not the same: each may have a budget.
func sameValue(a, b, source string) bool {
	if valueIn(a, source) != valueIn(b, source) {
		return false
	}
	return claimText(partOf(a, 1), "iss") == claimText(partOf(b, 1), "iss") && claimText(partOf(a, 0), "kid") == claimText(partOf(b, 0), "kid")
}

// partOf returns the first or second part of a JWT, and nil for any other credential.
func partOf(credential string, i int) (object map[string]any) {
	parts := strings.Split(credential, ".")
	if len(parts) != 3 {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[i])
	if err != nil || json.Unmarshal(text, &object) != nil {
		return nil
	}
	return object
}

// claimText returns the claim of exactly that name, else the one that its dots lead to through
// objects. It is "" if that is neither a text nor a number.
func claimText(in map[string]any, name string) string {
	switch v := in[name].(type) {
	case string:
		return v
	case float64:
		return fmt.Sprint(v)
	}
	for i := range len(name) {
		if object, ok := in[name[:i]].(map[string]any); ok && name[i] == '.' {
			if text := claimText(object, name[i+1:]); text != "" {
				return text
			}
		}
	}
	return ""
}
