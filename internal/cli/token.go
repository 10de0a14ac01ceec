package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
)

var apiToken = regexp.MustCompile(`^wpt_([A-Za-z0-9]{1,64})_`)

// IsAPIToken reports whether a text is an API token of the sample backend, not the id of one.
func IsAPIToken(text string) bool { return apiToken.MatchString(text) }

// TokenID returns what may be shown of a token: the public id of an API token of the sample
// backend, and of any other token the beginning of its hash.
func TokenID(token string) string {
	if m := apiToken.FindStringSubmatch(token); m != nil {
		return m[1]
	}
	hash := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(hash[:4])
}
