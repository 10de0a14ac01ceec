package pacer_test

import (
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
