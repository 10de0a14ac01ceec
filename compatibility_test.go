package weir

import (
	"encoding/hex"
	"testing"
	"time"
)

// The bytes of a key are promised (docs/compatibility.md): with others, a new version that shares
// a store with an old one would begin every window anew.
func TestTheBytesOfAKeyStayAsTheyAre(t *testing.T) {
	for _, c := range []struct {
		limiter, spec string
		s             sources
		want          string
	}{
		{"api", "ip", sources{"ip": "203.0.113.7"}, "036170690000003c00026970026970000b3230332e302e3131332e37"},
		{"api", "token or ip", sources{"token": "acme"}, "036170690000003c000b746f6b656e206f7220697005746f6b656e000461636d65"},
		{"api", "ip+header:X-Api-Key", sources{"ip": "203.0.113.7", "header:X-Api-Key": "k"}, "036170690000003c001369702b6865616465723a582d4170692d4b6579026970000b3230332e302e3131332e37106865616465723a582d4170692d4b657900016b"},
	} {
		if got := hex.EncodeToString(keyOf(t, c.limiter, time.Minute, c.spec, c.s)); got != c.want {
			t.Errorf("%s by %s is %s, want %s", c.limiter, c.spec, got, c.want)
		}
	}
}
