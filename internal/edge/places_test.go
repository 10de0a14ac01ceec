package edge

import (
	"testing"

	"github.com/weirlimit/weir/identity"
)

func TestAMissingKeyIsAnsweredWithEveryPlaceThatItCanBeIn(t *testing.T) {
	for _, test := range []struct {
		places []string
		want   string
	}{
		{nil, "as Authorization: Bearer <token>"},
		{[]string{"header:X-Api-Key"}, "as X-Api-Key: <key>"},
		{[]string{"header:X-Api-Key", "query:api_key"}, "as X-Api-Key: <key> or as ?api_key=<key>"},
		{[]string{"header:X-Api-Key", "basic", "query:api_key"}, "as X-Api-Key: <key>, as the user name of Authorization: Basic or as ?api_key=<key>"},
	} {
		var c Config
		for _, spec := range test.places {
			p, err := identity.ParsePlace(spec)
			if err != nil {
				t.Fatal(err)
			}
			c.TokenFrom = append(c.TokenFrom, p)
		}
		if got := c.tokenExamples(); got != test.want {
			t.Errorf("%q: %q, want %q", test.places, got, test.want)
		}
	}
}
