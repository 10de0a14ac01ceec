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

func TestStartUpNamesEachPlaceOfTokensOnce(t *testing.T) {
	for _, test := range []struct {
		places  []string
		forward TokenForward
		want    string
	}{
		{nil, ForwardBearer, ""},
		{[]string{"header:X-Api-Key"}, ForwardBearer, ", read from header:X-Api-Key, which is not forwarded"},
		{[]string{"header:X-Api-Key", "basic"}, ForwardBearer, ", read from header:X-Api-Key, basic, which are not forwarded"},
		{[]string{"header:X-Api-Key"}, ForwardAll, ", read from header:X-Api-Key"},
		{[]string{"bearer", "basic"}, ForwardBearer, ", read from bearer, basic, of which basic is not forwarded"},
		{[]string{"bearer", "basic", "query:key"}, ForwardBearer, ", read from bearer, basic, query:key, of which basic, query:key are not forwarded"},
	} {
		c := Config{TokenForward: test.forward}
		for _, spec := range test.places {
			p, err := identity.ParsePlace(spec)
			if err != nil {
				t.Fatal(err)
			}
			c.TokenFrom = append(c.TokenFrom, p)
		}
		if got := c.placesRow(); got != test.want {
			t.Errorf("%q, %s: %q, want %q", test.places, test.forward, got, test.want)
		}
	}
}
