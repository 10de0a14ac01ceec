package weir

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEverySourceIsFoundByItsName(t *testing.T) {
	for _, s := range Sources() {
		name := s.Example()
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
		"header:X-Api-Key":                   "",
		"header:x-api-key":                   `write it as "header:X-Api-Key"`,
		"header":                             `key source "header" is unknown`,
		"ip:X-Api-Key":                       `key source "ip:X-Api-Key" is unknown`,
		"header:Host":                        "names no caller",
		"header:Ä":                           `and not 'Ä'`,
		"header:a b":                         "letters, digits and dashes",
		"cookie:__Host-sid.2":                "",
		"cookie:sid":                         "",
		"cookie:Sid":                         "",
		"cookie":                             `key source "cookie" is unknown`,
		"cookie:":                            "1 to 64 characters, as in cookie:session_id",
		"cookie:a;b":                         "and not ';'",
		"cookie:a=b":                         "and not '='",
		"cookie:ä":                           "and not 'ä'",
		"query:tenant":                       "",
		"query:Tenant_Id":                    "",
		"query:a[]":                          "and not '['",
		"query:a%20":                         "and not '%'",
		"query:" + strings.Repeat("a", 65):   "1 to 64 characters, as in query:tenant",
		"host":                               "",
		"host:example.com":                   `key source "host:example.com" is unknown`,
		"claim:sub":                          "",
		"claim:org.id":                       "",
		"claim:https://example.com/plan?v=1": "and not '='",
		"claim:https://example.com/plan":     "",
		"claim":                              `key source "claim" is unknown`,
		"claim:a b":                          "and not ' '",
		"claim:a+b":                          "and not '+'",
		"header:" + strings.Repeat("A", maxField+1): "1 to 64 characters",
	} {
		w.Key = Key{{source}, {"ip"}}
		problems := Policy{Limiters: []Limiter{{Name: "l", Windows: []Window{w}}}}.Problems(Sources())
		if want == "" && len(problems) > 0 || want != "" && (len(problems) != 1 || !strings.Contains(problems[0].Message, want)) {
			t.Errorf("%s: %v, want %q", source, problems, want)
		}
	}
}

// A policy can name the example of each source, and its pattern matches it.
func TestTheExampleOfEachSourceIsAName(t *testing.T) {
	for _, s := range Sources() {
		name := s.Example()
		if k, err := ParseKey(name); err != nil || k.String() != name {
			t.Errorf("%s reads as %q, %v", name, k, err)
		}
		if found, ok := FindSource(Sources(), name); !ok || found != s {
			t.Errorf("%s is of %+v, %v", name, found, ok)
		}
		if _, field := SplitSource(name); s.Field != "" && !regexp.MustCompile("^"+s.NamePattern()+"$").MatchString(field) {
			t.Errorf("%s does not match %s", name, s.NamePattern())
		}
	}
}

// The pattern of a source, which editors check, accepts just the names that a policy may have.
func TestThePatternOfASourceIsItsNames(t *testing.T) {
	for _, s := range Sources() {
		if s.Field == "" {
			continue
		}
		pattern := regexp.MustCompile("^" + s.NamePattern() + "$")
		for c := range 256 {
			name := "a" + string(rune(c))
			_, err := canonicalSource(s.Name + ":" + name)
			if ok := pattern.MatchString(name); ok != (err == nil) {
				t.Errorf("%s:%s matches %v, and is read with %v", s.Name, name, ok, err)
			}
		}
	}
}

// A claim is part of a session, which is what a limiter can require.
func TestOnlyWholeCredentialsCanBeRequired(t *testing.T) {
	if got := Credentials(); !slices.Equal(got, []string{"session", "token", "cert"}) {
		t.Errorf("the credentials are %q", got)
	}
	for name, want := range map[string]string{"session": "session", "token": "token", "claim:sub": "session", "ip": "", "header:X-A": "", "everyone": "", "nothing": ""} {
		if got := SourceOf(name).Credential(); got != want {
			t.Errorf("%s needs %q, want %q", name, got, want)
		}
	}
	w, err := ParseWindow("5 per minute by claim:sub")
	if err != nil {
		t.Fatal(err)
	}
	problems := Policy{Limiters: []Limiter{{Name: "l", Requires: "claim:sub", Windows: []Window{w}}}}.Problems(Sources())
	if len(problems) != 1 || problems[0].Field != "requires" {
		t.Errorf("a required claim has the problems %v", problems)
	}
}
