package weir

import (
	"strings"
	"testing"
)

func TestEverySourceIsFoundByItsName(t *testing.T) {
	for _, s := range Sources() {
		name := s.Name
		if s.Field != "" {
			name += ":" + map[nameForm]string{fieldName: "X-Api-Key", parameterName: "tenant"}[s.names]
		}
		if found, ok := FindSource(Sources(), name); !ok || found != s {
			t.Errorf("%s is found as %+v, %v", name, found, ok)
		}
		if SourceOf(name) != s || s.About == "" || s.Counts == "" {
			t.Errorf("%s: the table has %+v, SourceOf returns %+v", name, s, SourceOf(name))
		}
		if canonical, err := canonicalSource(name); err != nil || canonical != name {
			t.Errorf("%s reads as %q, %v", name, canonical, err)
		}
	}
	for _, name := range []string{"ip:X-Api-Key", "header", "header:", "nobody", ""} {
		if found, ok := FindSource(Sources(), name); ok {
			t.Errorf("%q is found as %+v", name, found)
		}
		if s := SourceOf(name); s != (Source{}) {
			t.Errorf("%q: SourceOf returns %+v", name, s)
		}
	}
}

// A policy made in code must use a field's canonical spelling, because one field
// would otherwise have two budgets.
func TestAFieldHasOneSpellingInAPolicy(t *testing.T) {
	w, err := ParseWindow("5 per minute by ip")
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		"header:X-Api-Key": "",
		"header:x-api-key": `write it as "header:X-Api-Key"`,
		"header":           `key source "header" is unknown`,
		"ip:X-Api-Key":     `key source "ip:X-Api-Key" is unknown`,
		"header:Host":      "names no caller",
		"header:Ä":         `and not 'Ä'`,
		"header:a b":       "letters, digits and dashes",
		"header:" + strings.Repeat("A", maxField+1): "1 to 64 characters",
	} {
		w.Key = Key{{source}}
		problems := Policy{Limiters: []Limiter{{Name: "l", Windows: []Window{w}}}}.Problems(Sources())
		if want == "" && len(problems) > 0 || want != "" && (len(problems) != 1 || !strings.Contains(problems[0].Message, want)) {
			t.Errorf("%s: %v, want %q", source, problems, want)
		}
	}
}
