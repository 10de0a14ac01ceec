package identity_test

import (
	"crypto"
	"testing"

	"github.com/weirlimit/weir/identity"
)

// seen are callers with a cheap key: an address, or credentials that were verified
// before.
func seen(t testing.TB) map[string]func() (*identity.Resolver, string, *identity.HTTPRequest) {
	return map[string]func() (*identity.Resolver, string, *identity.HTTPRequest){
		"ip": func() (*identity.Resolver, string, *identity.HTTPRequest) {
			return resolver(t, identity.Options{}), identity.IP, request("203.0.113.7:4711")
		},
		"ip6": func() (*identity.Resolver, string, *identity.HTTPRequest) {
			return resolver(t, identity.Options{}), identity.IP, request("[2001:db8:1:2:3:4:5:6]:4711")
		},
		"ip behind proxies": func() (*identity.Resolver, string, *identity.HTTPRequest) {
			return resolver(t, identity.Options{TrustedProxies: trusted}), identity.IP,
				request("10.0.0.1:1", "X-Forwarded-For", "198.51.100.1, 203.0.113.7, 10.0.0.2")
		},
		"agent": func() (*identity.Resolver, string, *identity.HTTPRequest) {
			return resolver(t, identity.Options{}), identity.Agent, request("203.0.113.7:4711", "X-Agent-Id", "a1")
		},
		"session": func() (*identity.Resolver, string, *identity.HTTPRequest) {
			r, _ := verifier(t, identity.SessionsOptions{})
			return r, identity.Session, bearing(es256(claims("sid", "s", "iss", "widget", "sub", "a visitor of ordinary length")))
		},
		"session of a key set": func() (*identity.Resolver, string, *identity.HTTPRequest) {
			set := &keySet{keys: map[string]crypto.PublicKey{"k": &ecdsaKey().PublicKey}}
			r, _ := verifier(t, identity.SessionsOptions{Lookup: set.lookup})
			return r, identity.Session, bearing(withKid("k", claims("sid", "s")))
		},
		"claim": func() (*identity.Resolver, string, *identity.HTTPRequest) {
			r, _ := verifier(t, identity.SessionsOptions{})
			return r, "claim:org.id", bearing(es256(claims("sid", "s", "iss", "widget", "org", map[string]any{"id": 4711})))
		},
		"header": func() (*identity.Resolver, string, *identity.HTTPRequest) {
			return resolver(t, identity.Options{}), "header:X-Api-Key", request("203.0.113.7:4711", "X-Api-Key", "a key of ordinary length")
		},
		"cookie": func() (*identity.Resolver, string, *identity.HTTPRequest) {
			return resolver(t, identity.Options{}), "cookie:sid", request("203.0.113.7:4711", "Cookie", "theme=dark; sid=a1b2c3; lang=en")
		},
		"query": func() (*identity.Resolver, string, *identity.HTTPRequest) {
			return resolver(t, identity.Options{}), "query:tenant", askedOf("page=2&tenant=acme", "shop.example.com")
		},
		"host": func() (*identity.Resolver, string, *identity.HTTPRequest) {
			return resolver(t, identity.Options{}), identity.Host, askedOf("", "Shop.example.com:8443")
		},
		"token": func() (*identity.Resolver, string, *identity.HTTPRequest) {
			r, s, _ := withTokens(t)
			token, _ := s.mint("acme")
			return r, identity.Token, bearing(token)
		},
	}
}

func TestAKnownCallersKeyAllocatesNothing(t *testing.T) { // also under the race detector
	for name, start := range seen(t) {
		r, source, req := start()
		c, dst := new(identity.Caller), make([]byte, 0, 256)
		if n := testing.AllocsPerRun(100, func() {
			r.Start(c, req)
			c.Limiter("chat")
			if _, ok := c.AppendKey(dst, source); !ok {
				t.Fatal("no key")
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkKey(b *testing.B) {
	for name, start := range seen(b) {
		b.Run(name, func(b *testing.B) {
			r, source, req := start()
			c, dst := new(identity.Caller), make([]byte, 0, 256)
			r.Start(c, req)
			c.AppendKey(dst, source)
			b.ReportAllocs()
			for b.Loop() {
				r.Start(c, req)
				c.AppendKey(dst, source)
			}
		})
	}
}

// The cost of a credential that was not seen before.
func BenchmarkVerify(b *testing.B) {
	for name, mint := range map[string]func(any) string{"HS256": hs256, "RS256": rs256, "ES256": es256, "EdDSA": eddsa} {
		b.Run(name, func(b *testing.B) {
			req := bearing(mint(claims("sid", "s")))
			o := identity.SessionsOptions{Keys: allKeys()}
			sessions := must(identity.NewSessions(o))
			for b.Loop() {
				r := must(identity.New(identity.Options{Sessions: sessions, Now: newClock().Now}))
				if _, err := caller(r, req).Session(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
