package identity_test

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/weirlimit/weir/identity"
)

// There is no panic, and no second spelling with another budget (D15).
func FuzzAStringIsATokenInOneSpellingOnly(f *testing.F) {
	for i := range 3 {
		token, _, _, err := identity.NewToken(bytes.NewReader(bytes.Repeat([]byte{byte(i * 85)}, 27)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(token)
		f.Add(strings.ToUpper(token))
	}
	f.Add("wpt__")
	f.Fuzz(func(t *testing.T, s string) {
		id, hash, err := identity.ParseToken(s)
		if err != nil {
			if id != "" || hash != (identity.TokenHash{}) {
				t.Errorf("%q is refused (%v), and yet has id %q", s, err, id)
			}
			return
		}
		if hash != sha256.Sum256([]byte(s)) || !strings.HasPrefix(s, "wpt_"+id+"_") {
			t.Errorf("%q has id %q and hash %x", s, id, hash)
		}
		for _, other := range []string{s + "=", " " + s, s + "\n", strings.ToUpper(s), s[:len(s)-1]} {
			if _, _, err := identity.ParseToken(other); err == nil {
				t.Errorf("%q is a token, and so is %q", s, other)
			}
		}
	})
}
