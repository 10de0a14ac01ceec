package sample

import (
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/weirlimit/weir/identity"
)

// Behind a trusted proxy, visitors outside any limiter are counted by their own addresses, as
// limiters count them (D12), so that they do not share the proxy's slots.
func TestWhereNoLimiterCoversARequestTheCallerIsFoundBehindItsProxy(t *testing.T) {
	k := setUpWith(t, Options{Callers: identity.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}})
	for peer, want := range map[string]string{"10.0.0.1:1": "203.0.113.7", "192.0.2.9:1": "192.0.2.9"} {
		hr := httptest.NewRequest("GET", "/api/v1/widget/events", nil)
		hr.RemoteAddr = peer
		hr.Header.Set("X-Forwarded-For", "203.0.113.7")
		r := &request{Request: hr, w: httptest.NewRecorder()}
		if got := k.b.caller(r).Addr().String(); got != want {
			t.Errorf("peer %s: the caller is %s, want %s", peer, got, want)
		}
	}
}
