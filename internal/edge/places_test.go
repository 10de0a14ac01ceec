package edge

import (
	"testing"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway"
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

// A proxy that asks forwards what its client has sent: no flag of this server changes that.
func TestStartUpSaysWhoForwardsKeys(t *testing.T) {
	from := []identity.Place{{}}
	field, err := identity.ParsePlace("header:X-Api-Key")
	if err != nil {
		t.Fatal(err)
	}
	upstream, asked := []gateway.Site{{}}, ForwardAuth{Listen: "127.0.0.1:9000"}
	for _, test := range []struct {
		config Config
		want   string
	}{
		{Config{}, ""},
		{Config{ForwardAuth: asked}, ""},
		{Config{Sites: upstream, TokenFrom: append(from, field)}, ", read from bearer, header:X-Api-Key, of which header:X-Api-Key is not forwarded"},
		{Config{Sites: upstream, TokenFrom: append(from, field), TokenForward: ForwardAll}, ", read from bearer, header:X-Api-Key"},
		{Config{ForwardAuth: asked, TokenFrom: append(from, field)}, ", read from bearer, header:X-Api-Key, and forwarded by the proxy unless it removes them"},
		{Config{ForwardAuth: asked, Sites: upstream, TokenFrom: append(from, field)},
			", read from bearer, header:X-Api-Key, of which header:X-Api-Key is not forwarded to the upstream; a proxy that asks forwards them unless it removes them"},
		{Config{ForwardAuth: asked, Sites: upstream, TokenFrom: append(from, field), TokenForward: ForwardAll}, ", read from bearer, header:X-Api-Key"},
	} {
		if got := test.config.placesRow(); got != test.want {
			t.Errorf("%+v: %q, want %q", test.config.ForwardAuth, got, test.want)
		}
	}
}
