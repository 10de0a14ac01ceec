package identity_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// Behind a proxy the client's address is in a header field. The field is trusted
// only if the peer is a trusted proxy, and only up to the first untrusted address.
func Example() {
	who, err := identity.New(identity.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	check(err)

	for _, peer := range []string{"10.0.0.1:4000", "198.51.100.9:4000"} {
		r := httptest.NewRequest("GET", "/", http.NoBody)
		r.RemoteAddr = peer
		r.Header.Set("X-Forwarded-For", "203.0.113.5, 192.0.2.7, 10.0.0.2")

		var caller identity.Caller
		who.Start(&caller, &identity.HTTPRequest{Request: r})
		fmt.Println(peer, "is", caller.Addr())
	}
	// Output:
	// 10.0.0.1:4000 is 192.0.2.7
	// 198.51.100.9:4000 is 198.51.100.9
}

// A service can add its own key sources, here a client's certificate. A request
// without one has no value for the source.
func ExampleOptions_extra() {
	client := weir.Source{Name: "client", Kind: weir.Credential, Optional: true, About: "one client certificate"}
	who, err := identity.New(identity.Options{Extra: []identity.Source{{Source: client,
		Find: func(r identity.Request, _ string) (string, bool) {
			h, ok := r.(*identity.HTTPRequest)
			if !ok || h.TLS == nil || len(h.TLS.VerifiedChains) == 0 {
				return "", false
			}
			return h.TLS.VerifiedChains[0][0].Subject.CommonName, true
		},
	}}})
	check(err)

	var caller identity.Caller
	who.Start(&caller, &identity.HTTPRequest{Request: httptest.NewRequest("GET", "/", http.NoBody)})
	_, ok := caller.AppendKey(nil, "client")
	fmt.Println(ok, weir.SourceNames(who.Sources()))
	// Output:
	// false ip, agent, session, token, header:NAME, path:NAME, cookie:NAME, query:NAME, host, claim:NAME, cert, everyone, client
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
