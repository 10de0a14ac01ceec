package pacer_test

import (
	"encoding/base64"
	"net/http"
	"testing"

	"github.com/weirlimit/weir/pacer"
)

// A field's value is the same for caller and server: it occurs once, is trimmed,
// and is not empty.
func TestAFieldsValueIsTheSameAsTheServers(t *testing.T) {
	for _, c := range []struct {
		lines []string
		want  string
		ok    bool
	}{
		{[]string{"k"}, "k", true}, {[]string{" k\t"}, "k", true}, {[]string{"a, b"}, "a, b", true},
		{[]string{""}, "", false}, {[]string{" "}, "", false}, {[]string{"k", "k"}, "", false}, {nil, "", false},
	} {
		r := &http.Request{Header: http.Header{"X-Api-Key": c.lines}}
		if v, ok := pacer.Source(r, "header:X-Api-Key"); v != c.want || ok != c.ok {
			t.Errorf("%q: %q, %v, want %q, %v", c.lines, v, ok, c.want, c.ok)
		}
	}
}

// Two requests that a server counts together are paced together, and what it counts by address has
// no value.
func TestAChosenValueAndAClaimAreTheSameAsTheServers(t *testing.T) {
	bearing := func(claims string) http.Header {
		return http.Header{"Authorization": {"Bearer e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"}}
	}
	for _, c := range []struct {
		source, url string
		header      http.Header
		want        string
	}{
		{"cookie:sid", "/", http.Header{"Cookie": {"a=1; sid=k"}}, "k"},
		{"cookie:sid", "/", http.Header{"Cookie": {`sid="k"`, "sid=k"}}, "k"},
		{"cookie:sid", "/", http.Header{"Cookie": {"sid=k; sid=l"}}, ""},
		{"cookie:sid", "/", http.Header{"Cookie": {"SID=k"}}, ""},
		{"query:tenant", "/?tenant=a%20b", nil, "a b"},
		{"query:tenant", "/?tenant=a&tenant=b", nil, ""},
		{"query:tenant", "/?tenant=", nil, ""},
		{"host", "http://Example.com.:81/", nil, "example.com"},
		{"host", "http://[2001:db8::1]:81/", nil, "2001:db8::1"},
		{"claim:org.id", "/", bearing(`{"iss":"a","org":{"id":5}}`), "a 5"},
		{"claim:org.id", "/", bearing(`{"iss":"a","org.id":"5","org":{"id":6}}`), "a 5"},
		{"claim:org.id", "/", bearing(`{"org":{"id":5.5}}`), ""},
		{"claim:org.id", "/", bearing(`{"org":{"id":9007199254740992}}`), ""},
		{"claim:org.id", "/", bearing(`{"org":["id"]}`), ""},
		{"claim:org.id", "/", bearing(`not JSON`), ""},
		{"claim:org.id", "/", http.Header{"Authorization": {"Bearer wpt_abc_def"}}, ""},
		{"claim:org.id", "/", nil, ""},
		{"nothing:x", "/", nil, ""},
	} {
		r, err := http.NewRequest("GET", c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.header != nil {
			r.Header = c.header
		}
		if v, ok := pacer.Source(r, c.source); v != c.want || ok != (c.want != "") {
			t.Errorf("%s of %s %v: %q, %v, want %q", c.source, c.url, c.header, v, ok, c.want)
		}
	}
}
