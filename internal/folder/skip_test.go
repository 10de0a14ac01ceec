package folder

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestFilesToSkipAreNoDocuments(t *testing.T) {
	dir := write(t, map[string]string{"a.md": "", "sub/state.md": "", "state.md": "", "share.txt": "", "later.txt": ""})
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir  string
		skip []string
	}{
		{dir, []string{"state.md", filepath.Join(dir, "share.txt"), filepath.Join(dir, "sub", "..", "later.txt")}},
		{dir, []string{filepath.Join(link, "state.md"), filepath.Join(link, "share.txt"), filepath.Join(link, "later.txt"), "/elsewhere/a.md"}},
		{link, []string{filepath.Join(dir, "state.md"), "share.txt", filepath.Join(link, "later.txt"), filepath.Join(dir, "gone.md")}},
	} {
		f, err := Open(c.dir, Options{Base: &url.URL{Scheme: "http", Host: "x"}, Skip: c.skip})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var found []string
		if _, err := f.Walk(context.Background(), func(path string, _ *Problem) { found = append(found, path) }); err != nil {
			t.Fatal(err)
		}
		if want := []string{"a.md", "sub/state.md"}; !slices.Equal(found, want) {
			t.Errorf("in %s without %q there are %q, want %q", c.dir, c.skip, found, want)
		}
	}
}

func TestWhatABaseHasEscapedStays(t *testing.T) {
	for base, want := range map[string]string{
		"https://x.example":         "https://x.example/b/c%20d",
		"https://x.example/a%2Fb":   "https://x.example/a%2Fb/b/c%20d",
		"https://x.example/a%2Fb/":  "https://x.example/a%2Fb/b/c%20d",
		"https://x.example/a%2F":    "https://x.example/a%2F/b/c%20d",
		"https://x.example/%C3%BC/": "https://x.example/%C3%BC/b/c%20d",
	} {
		t.Run(base, func(t *testing.T) {
			u, err := url.Parse(base)
			if err != nil {
				t.Fatal(err)
			}
			if got, _, err := address(u, "b/c d.md", ""); err != nil || got != want {
				t.Errorf("below %s: %s, %v; want %s", base, got, err, want)
			}
		})
	}
}
