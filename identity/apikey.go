package identity

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
)

// The length in bytes of a key. A shorter one can be guessed: only an unsalted hash of it is kept.
const (
	minKey = 16
	maxKey = maxBearer
)

// HashKey returns the hash by which a key of any form is stored: SHA-256 of all of it. A key has 16
// to 8192 visible ASCII characters. One that begins with wpt_ is Weir's own and must have the right
// checksum (see ParseToken). The hash has no salt, since it is what a key is found by, so a key
// needs at least 128 random bits: whoever reads the hashes could guess anything less. Errors
// contain nothing of the key.
func HashKey(key string) (TokenHash, error) {
	if strings.HasPrefix(key, tokenPrefix) {
		_, hash, err := ParseToken(key)
		return hash, err
	}
	if len(key) < minKey || len(key) > maxKey {
		return TokenHash{}, fmt.Errorf("the key has %d characters: expected %d to %d", len(key), minKey, maxKey)
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return TokenHash{}, errors.New("the key has a character other than visible ASCII, such as a blank or a letter with an accent")
		}
	}
	return sha256.Sum256([]byte(key)), nil
}
