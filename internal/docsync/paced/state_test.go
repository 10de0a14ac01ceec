package paced

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func TestAStateIsKeptWhereTheSystemKeepsThem(t *testing.T) {
	for _, test := range []struct {
		system string
		env    map[string]string
		want   string // empty: an error
	}{
		{"linux", map[string]string{"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x"},
		{"linux", map[string]string{"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state"},
		{"freebsd", map[string]string{"HOME": "/h"}, "/h/.local/state"},
		{"darwin", map[string]string{"HOME": "/h"}, "/h/Library/Application Support"},
		{"darwin", map[string]string{"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x"},
		{"windows", map[string]string{"LOCALAPPDATA": "/l", "HOME": "/h"}, "/l"},
		{"windows", map[string]string{"HOME": "/h"}, ""},
		{"linux", map[string]string{"HOME": "."}, ""},
		{"linux", map[string]string{}, ""},
	} {
		got, err := stateHome(test.env, test.system)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s, %v: %q, %v; want %q", test.system, test.env, got, err, test.want)
		}
	}
}

func TestAFolderHasOneStateForEachServer(t *testing.T) {
	dir := t.TempDir()
	odd, link := filepath.Join(dir, "o d/d\x1b é"), filepath.Join(dir, "link")
	if err := os.MkdirAll(odd, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(odd, link); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"XDG_STATE_HOME": dir}
	state := func(folder, to string) string {
		u, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		s, err := StateFile(env, folder, u)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one := state(odd, "http://a.example.com")
	if !regexp.MustCompile(`^` + regexp.QuoteMeta(dir) + `/weir/sync/d-[0-9a-f]{16}$`).MatchString(one) {
		t.Errorf("the state is %q", one)
	}
	if two := state(link+"/.", "http://a.example.com"); two != one {
		t.Errorf("by another name it is %q, not %q", two, one)
	}
	if other := state(odd, "http://b.example.com"); other == one {
		t.Errorf("for another server it is %q too", other)
	}
	if other := state(dir, "http://a.example.com"); other == one {
		t.Errorf("of another folder it is %q too", other)
	}
	t.Chdir(odd)
	if here := state(".", "http://a.example.com"); here != one {
		t.Errorf("from within it is %q, not %q", here, one)
	}
}

func TestAServerHasOneSpelling(t *testing.T) {
	for s, want := range map[string]string{
		"http://Weir.Example":            "http://weir.example",
		"http://weir.example/":           "http://weir.example",
		"http://weir.example/A/b//":      "http://weir.example/A/b",
		"http://weir.example/a%2Fb/":     "http://weir.example/a%2Fb",
		"http://weir.example/a%2F":       "http://weir.example/a%2F",
		"http://weir.example/a b/%C3%BC": "http://weir.example/a%20b/%C3%BC",
	} {
		t.Run(s, func(t *testing.T) {
			u, err := url.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			one := Normalize(u)
			if one.String() != want || one.JoinPath("v1/wp").String() != want+"/v1/wp" || Normalize(one).String() != want {
				t.Errorf("%q is spelled %q and %q, want %q", s, one, one.JoinPath("v1/wp"), want)
			}
		})
	}
}
