package identity_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// The errors come from New, before any request.
func TestAnExtraKeySourceNeedsAFunctionAndANewName(t *testing.T) {
	find := func(identity.Request, string) (string, bool) { return "v", true }
	for _, c := range []struct {
		name, why string
		find      func(identity.Request, string) (string, bool)
	}{
		{"tenant", "", find},
		{"tenant", "has no function", nil},
		{identity.Session, "already exists", find},
	} {
		_, err := identity.New(identity.Options{Extra: []identity.Source{{Source: weir.Source{Name: c.name}, Find: c.find}}})
		if c.why == "" && err != nil || c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.why)
		}
	}
}

// All callers have the same value, with or without an address or a credential.
func TestEveryoneIsTheSameForAllCallers(t *testing.T) {
	r := resolver(t, identity.Options{})
	for _, req := range []*identity.HTTPRequest{request("192.0.2.1:1"), request("[2001:db8::1]:1", "X-Agent-Id", "a"), bearing("bad"), request("@")} {
		if v, ok := key(caller(r, req), identity.Everyone); !ok || v != "" {
			t.Errorf("%s: %q, %v", req.RemoteAddr, v, ok)
		}
	}
}
