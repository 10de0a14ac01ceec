package identity_test

import (
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

func TestEverySourceOfTheTableHasAValue(t *testing.T) {
	r := resolver(t, identity.Options{})
	for _, s := range r.Sources() {
		name := s.Name
		if s.Field != "" {
			name += ":X-Api-Key"
		}
		req := askedOf("X-Api-Key=k", "example.com", "X-Agent-Id", "a", "X-Api-Key", "k", "Cookie", "X-Api-Key=k")
		if _, ok := key(caller(r, req), name); !ok && s.Kind != weir.Credential && s.Name != identity.Path {
			t.Errorf("%s: no value", name)
		}
	}
	if _, ok := key(caller(r, request("192.0.2.1:1")), "nothing"); ok {
		t.Error("a source that is not in the table has a value")
	}
}

// A field that backends could parse in two ways has no value, and is counted by
// address.
func TestAFieldIsCountedByItsOneValue(t *testing.T) {
	r := resolver(t, identity.Options{})
	for _, c := range []struct {
		lines []string
		want  string
		ok    bool
	}{
		{[]string{"X-Api-Key", "k"}, "k", true},
		{[]string{"X-Api-Key", " k \t"}, "k", true},
		{[]string{"X-Api-Key", "K"}, "K", true},
		{[]string{"X-Api-Key", "a, b"}, "a, b", true},
		{[]string{"X-Api-Key", "\xff"}, "\xff", true},
		{[]string{"X-Api-Key", ""}, "", false},
		{[]string{"X-Api-Key", "  "}, "", false},
		{[]string{"X-Api-Key", "a", "X-Api-Key", "b"}, "", false},
		{[]string{"X-Api-Key", "a", "X-Api-Key", "a"}, "", false},
		{[]string{"X-Other", "k"}, "", false},
		{nil, "", false},
	} {
		if v, ok := key(caller(r, request("192.0.2.1:1", c.lines...)), "header:X-Api-Key"); v != c.want || ok != c.ok {
			t.Errorf("%q: %q, %v; want %q, %v", c.lines, v, ok, c.want, c.ok)
		}
	}
}

// An Extra cannot replace one field of a built-in source, because the policy would
// then differ from the counting.
func TestASourceOfAnEmbeddingServiceHasAWellFormedName(t *testing.T) {
	find := func(identity.Request, string) (string, bool) { return "v", true }
	for _, name := range []string{"header:X-Api-Key", "account:X-Api-Key", "", "Account", "a b", "a+b", "a or b", " a"} {
		extra := identity.Source{Source: weir.Source{Name: name}, Find: find}
		if _, err := identity.New(identity.Options{Extra: []identity.Source{extra}}); err == nil {
			t.Errorf("%q is accepted", name)
		}
	}
	r := resolver(t, identity.Options{Extra: []identity.Source{
		{Source: weir.Source{Name: "account"}, Find: find},
		{Source: weir.Source{Name: "form", Field: "NAME"}, Find: func(_ identity.Request, field string) (string, bool) { return field, true }},
	}})
	for source, want := range map[string]string{"account": "v", "form:Sid": "Sid"} {
		if v, ok := key(caller(r, request("192.0.2.1:1")), source); v != want || !ok {
			t.Errorf("%s: %q, %v; want %q", source, v, ok, want)
		}
	}
	for _, source := range []string{"account:Sid", "form", "form:"} {
		if v, ok := key(caller(r, request("192.0.2.1:1")), source); ok {
			t.Errorf("%s: %q", source, v)
		}
	}
}
