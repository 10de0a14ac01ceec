package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/policyfile"
)

// The host of a request is its Host field. X-Forwarded-Host chooses nothing, whoever sends it: a
// proxy that is trusted for addresses may pass on what its clients have sent under that name.
func TestTheHostFieldChoosesTheRoute(t *testing.T) {
	f, err := policyfile.Parse("p", []byte("limiters:\n- {name: api, routes: [api.example.com/*], windows: [3 per minute by ip]}\n- {name: rest, routes: [/*], windows: [9 per minute by ip+host]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := memstore.New(memstore.Options{Memory: memstore.MinMemory})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	d, err := weir.New(f.Policy, store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := httplimit.New(d, httplimit.Options{Identity: who})
	if err != nil {
		t.Fatal(err)
	}
	handler := m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct{ host, forwarded, limit, remaining string }{
		{"api.example.com", "", "3", "2"},
		{"API.example.com:8443", "other.example.com", "3", "1"},
		{"other.example.com", "api.example.com", "9", "8"},
		{"other.example.com.", "third.example.com", "9", "7"},
	} {
		r := httptest.NewRequest("GET", "/x", http.NoBody)
		r.Host, r.RemoteAddr = c.host, "192.0.2.7:4711"
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-Host", c.forwarded)
			r.Header.Set("Forwarded", "host="+c.forwarded)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		got := [2]string{}
		for name, values := range w.Result().Header {
			switch http.CanonicalHeaderKey(name) {
			case "X-Ratelimit-Limit":
				got[0] = values[0]
			case "X-Ratelimit-Remaining":
				got[1] = values[0]
			}
		}
		if got != [2]string{c.limit, c.remaining} {
			t.Errorf("%s, forwarded as %q: %s of %s remaining, want %s of %s", c.host, c.forwarded, got[1], got[0], c.remaining, c.limit)
		}
	}
}
