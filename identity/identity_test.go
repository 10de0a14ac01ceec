package identity_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/identity"
)

func TestAKeySourceOfOnesOwnNeedsAFunctionAndANameOfItsOwn(t *testing.T) { // before a request meets it
	find := func(identity.Request) (string, bool) { return "v", true }
	for _, c := range []struct {
		name, why string
		find      func(identity.Request) (string, bool)
	}{
		{"tenant", "", find},
		{"tenant", "has no function", nil},
		{identity.Session, "is built in", find},
	} {
		_, err := identity.New(identity.Options{Extra: map[string]func(identity.Request) (string, bool){c.name: c.find}})
		if c.why == "" && err != nil || c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.why)
		}
	}
}
