package identity_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// askedOf returns a request for a host with a raw query. fields are as for request.
func askedOf(query, host string, fields ...string) *identity.HTTPRequest {
	r := request("192.0.2.1:4711", fields...)
	r.Request.Host, r.URL.RawQuery = host, query
	return r
}

// A cookie that a backend could read with another value than the one that was counted has no value.
func TestACookieIsCountedByItsOneValue(t *testing.T) {
	r := resolver(t, identity.Options{})
	for _, c := range []struct {
		lines []string
		want  string
	}{
		{[]string{"sid=a"}, "a"},
		{[]string{"theme=dark; sid=a;lang=en"}, "a"},
		{[]string{"theme=dark", "sid=a"}, "a"},
		{[]string{" sid = a "}, "a"},
		{[]string{`sid="a"`}, "a"},
		{[]string{"sid=a=b"}, "a=b"},
		{[]string{"sid=a; sid=a"}, "a"},
		{[]string{"sid=a", `sid="a"`}, "a"},
		{[]string{"sid=" + strings.Repeat("x", 64<<10)}, strings.Repeat("x", 64<<10)},
		{[]string{"sid=a; sid=b"}, ""},
		{[]string{"sid=a", "sid=b"}, ""},
		{[]string{"sid=a; sid="}, ""},
		{[]string{"sid=; sid=a"}, ""},
		{[]string{"sid="}, ""},
		{[]string{`sid=""`}, ""},
		{[]string{"sid"}, ""},
		{[]string{"SID=a; sid2=b; xsid=c"}, ""},
		{[]string{`sid="a`}, ""},
		{[]string{`sid=a"b`}, ""},
		{[]string{`sid=a\b`}, ""},
		{[]string{"sid=\xff"}, ""},
		{[]string{"sid=a\tb"}, ""},
		{[]string{"sid=a; sid=\xff"}, ""},
		{[]string{"sid=%61bc"}, "abc"},
		{[]string{"sid=s%3Aa1b2"}, "s:a1b2"},
		{[]string{"sid=abc; sid=a%62c"}, "abc"},
		{[]string{"sid=%2561"}, "%61"},
		{[]string{"sid=a+b"}, "a+b"},
		{[]string{`sid=%7B%22a%22%3A1%7D`}, `{"a":1}`},
		{[]string{"sid=b%C3%BCcher"}, "b\u00fccher"},
		{[]string{"sid=50%"}, ""},
		{[]string{"sid=%61%"}, ""},
		{[]string{"sid=%ff"}, ""},
		{[]string{"sid=%0a"}, ""},
		{[]string{"sid=%C2%85"}, ""},
		{[]string{"sid=a; SID=b"}, ""},
		{[]string{"sid=a; %73id=b"}, ""},
		{[]string{"sid[]=b; sid=a"}, ""},
		{[]string{"s.id=b; sid=a"}, "a"},
		{[]string{""}, ""},
		{[]string{";=;;"}, ""},
		{nil, ""},
	} {
		var fields []string
		for _, line := range c.lines {
			fields = append(fields, "Cookie", line)
		}
		if v, ok := key(caller(r, request("192.0.2.1:1", fields...)), "cookie:sid"); ok && v != c.want || ok != (c.want != "") {
			t.Errorf("%.60q: %.60q, %v; want %.60q", c.lines, v, ok, c.want)
		}
	}
}

// Some servers also split cookies at commas, blanks and quotes, or end a value at "&". A cookie
// that only they find, or find with another value, has no value.
func TestACookieThatLaxServersReadOtherwiseHasNoValue(t *testing.T) {
	r := resolver(t, identity.Options{})
	none := []string{
		"sid=victim a=1", "sid=x, sid=victim", "sid=x,sid=victim", "sid=victim&junk", "sid=victim, b", "sid=victim\ta", `sid="victim a"`, "sid=a&b",
		"a=1 sid=victim; sid=x", "a=1,sid=victim; sid=x", "a=1, sid = victim; sid=x", "a=1\tsid\t=victim; sid=x", "a sid=victim; sid=x",
		`a="1"sid=victim; sid=x`, `a="1; sid=x; b=" sid=victim`, `a="sid=victim"; sid=x`, "a=1, SID=victim; sid=x", "a=1, %73id=victim; sid=x",
		"a=1 sid[]=victim; sid=x", "sid=x; a=1, sid=victim", "sid=x; a= sid=victim", "\xa0sid=victim; sid=x", "sid\xa0=victim; sid=x",
		"\u00a0sid\u00a0=victim; sid=x", "a=\xffsid=victim; sid=x",
	}
	for _, line := range none {
		if v, ok := key(caller(r, request("192.0.2.1:1", "Cookie", line)), "cookie:sid"); ok {
			t.Errorf("%q has the value %q, want none", line, v)
		}
	}
	for _, line := range []string{
		`consent={"sid": 1, "at": "1, 2"}; sid=x`, "sid=x; last=Wed, 21 Oct 2026 07:28:00 GMT; a=b", "a=my sid; sid=x", "a=sid, b; sid=x", "sid=x; a=b c=d, e=f",
		"a=sid=1; sid=x", "ref=/page?sid=1&sid=2; sid=x", "a=1,xsid=2 sids=3; sid=x", "sid=x;\ta=\"b, c\"", "sid=x; a=sid", "a=caf\xe9; sid=x", " sid = x ; sid=x",
	} {
		if v, ok := key(caller(r, request("192.0.2.1:1", "Cookie", line)), "cookie:sid"); !ok || v != "x" {
			t.Errorf("%q: %q, %v; want x", line, v, ok)
		}
	}
	// This takes no quadratic time.
	blanks := "a=" + strings.Repeat(" ", 64<<10) + strings.Repeat("sid ", 16<<10)
	if v, ok := key(caller(r, request("192.0.2.1:1", "Cookie", blanks+"; sid=x")), "cookie:sid"); !ok || v != "x" {
		t.Errorf("after many blanks: %q, %v; want x", v, ok)
	}
}

// PHP reads "." and blanks in a cookie's name as "_", and the first of two cookies.
func TestACookieThatPHPReadsUnderANameHasNoValue(t *testing.T) {
	r := resolver(t, identity.Options{})
	for cookies, want := range map[string]string{
		"session_id=a":                      "a",
		"session.id=b; session_id=a":        "",
		"session_id=a; session id=b":        "",
		"session_id=a; session_id[x]=b":     "",
		"session_id=a; my_session_id=b":     "a",
		"session_id=a; session_ids=b":       "a",
		"session%5Fid=b; session_id=a":      "",
		"session%2Eid=b; session_id=a; x=y": "",
	} {
		if v, ok := key(caller(r, request("192.0.2.1:1", "Cookie", cookies)), "cookie:session_id"); v != want && ok || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", cookies, v, ok, want)
		}
	}
}

// A query that readers read differently has no value, also where no gateway answers it 400.
func TestAParameterIsCountedByItsOneValue(t *testing.T) {
	r := resolver(t, identity.Options{})
	for query, want := range map[string]string{
		"tenant=a":                              "a",
		"x=1&tenant=a&y=2":                      "a",
		"tenant=a%20b":                          "a b",
		"tenant=a+b":                            "a b",
		"ten%61nt=a":                            "a",
		"tenant=a&tenant=%61":                   "a",
		"tenant=a&tenants=b":                    "a",
		"tenant=%ff":                            "\xff",
		"tenant=a&tenant=b":                     "",
		"tenant=&tenant=b":                      "",
		"tenant=a&tenant[]=b":                   "",
		"tenant=a&Tenant=b":                     "",
		"tenant=a;x=1":                          "",
		"tenant=a&x=1;tenant=b":                 "",
		"tenant=%zz":                            "",
		"tenant=":                               "",
		"tenant":                                "",
		"x=tenant":                              "",
		"":                                      "",
		"[tenant]=a":                            "",
		"+tenant=a":                             "",
		"tenant%00=a":                           "",
		strings.Repeat("x&", 1000) + "tenant=a": "",
	} {
		if v, ok := key(caller(r, askedOf(query, "")), "query:tenant"); ok && v != want || ok != (want != "") {
			t.Errorf("%.60q: %q, %v; want %q", query, v, ok, want)
		}
	}
}

// Names that some servers read alike are ambiguous beside each other, whatever they are made of.
func TestAParameterThatReadersNameDifferentlyIsAmbiguous(t *testing.T) {
	for _, c := range []struct {
		name, query string
		ambiguous   bool
	}{
		{"api_key", "api_key=a", false},
		{"api_key", "api.key=a", true},
		{"api_key", "api+key=a", true},
		{"api_key", "api[key=a", true},
		{"api_key", "API_KEY=a", true},
		{"api.key", "api.key=a", false},
		{"api.key", "api_key=a", true},
		{"_id", "_id=a", false},
		{"_id", ".id=a", true},
		{"_", "x=1", false},
		{"a-b", "a_b=1", false},
		{"a-b", "A-b=1", true},
	} {
		if got := identity.QueryIsAmbiguous(c.query, c.name); got != c.ambiguous {
			t.Errorf("%s in %q: ambiguous %v, want %v", c.name, c.query, got, c.ambiguous)
		}
	}
}

// All spellings of one host are one budget, and what is no host is none.
func TestAHostHasOneForm(t *testing.T) {
	r := resolver(t, identity.Options{})
	for authority, want := range map[string]string{
		"example.com":           "example.com",
		"Example.COM":           "example.com",
		"example.com:8443":      "example.com",
		"example.com:":          "example.com",
		"example.com.":          "example.com",
		"example.com.:443":      "example.com",
		"xn--bcher-KVA.example": "xn--bcher-kva.example",
		"a_b.example.com":       "a_b.example.com",
		"localhost":             "localhost",
		"192.0.2.7:80":          "192.0.2.7",
		"[2001:DB8:0::7]:80":    "[2001:db8::7]",
		"[2001:db8::7]":         "[2001:db8::7]",
		"":                      "",
		".":                     "",
		"..":                    "",
		".example.com":          "",
		"example..com":          "",
		"example.com..":         "",
		"bücher.example":        "",
		"ex%61mple.com":         "",
		"a b":                   "",
		"user@example.com":      "",
		"example.com:80:81":     "",
		"example.com:x":         "",
		":80":                   "",
		"[::1":                  "",
		"[::1%eth0]":            "",
		"[192.0.2.7]":           "",
		"[::1]x":                "",
		"example.com\x00":       "",
		"\xff":                  "",
	} {
		v, ok := key(caller(r, askedOf("", authority)), identity.Host)
		if v != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", authority, v, ok, want)
		}
	}
}

// A source that appends a value extends what is there already, and a source without one leaves it.
func TestAHostThatIsNoneLeavesTheKeyAlone(t *testing.T) {
	if got, ok := weir.AppendHost([]byte("key"), "example com"); ok || string(got) != "key" {
		t.Errorf("%q, %v", got, ok)
	}
	if got, ok := weir.AppendHost([]byte("key"), "Example.com:1"); !ok || string(got) != "keyexample.com" {
		t.Errorf("%q, %v", got, ok)
	}
}
