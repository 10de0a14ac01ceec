package folder

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWhatIsExcludedIsPassedOver(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.md", "A.md", "drafts/b.md", "docs/drafts/c.md", "docs/d.md", "docs/old/e.md", "docs/old/deep/f.md", "drafts.md", "x[1].md", "docs/draft-1.txt"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all := []string{"A.md", "a.md", "docs/d.md", "docs/draft-1.txt", "docs/drafts/c.md", "docs/old/deep/f.md", "docs/old/e.md", "drafts.md", "drafts/b.md", "x[1].md"}
	for _, test := range []struct {
		patterns, gone string
		excluded       int
	}{
		{"", "", 0},
		{"drafts", "docs/drafts/c.md drafts/b.md", 2},
		{"drafts/", "docs/drafts/c.md drafts/b.md", 2},
		{"drafts.md/", "", 0}, // not a folder
		{"/drafts", "drafts/b.md", 1},
		{"docs/drafts", "docs/drafts/c.md", 1},
		{"/docs/drafts/", "docs/drafts/c.md", 1},
		{"a.md", "a.md", 1}, // case matters
		{"*.md", "A.md a.md docs/d.md docs/drafts/c.md docs/old/deep/f.md docs/old/e.md drafts.md drafts/b.md x[1].md", 9},
		{"/*.md", "A.md a.md drafts.md x[1].md", 4},
		{"docs/*", "docs/d.md docs/draft-1.txt docs/drafts/c.md docs/old/deep/f.md docs/old/e.md", 4},
		{"docs/**/*.md", "docs/d.md docs/drafts/c.md docs/old/deep/f.md docs/old/e.md", 4},
		{"**/deep", "docs/old/deep/f.md", 1},
		{"draft-?.{txt,md}", "docs/draft-1.txt", 1},
		{"[aA].md", "A.md a.md", 2},
		{`x\[1\].md`, "x[1].md", 1},
		{"drafts old", "docs/drafts/c.md docs/old/deep/f.md docs/old/e.md drafts/b.md", 3},
		{"**", strings.Join(all, " "), 6},
		{"nothing", "", 0},
	} {
		f, err := Open(dir, Options{Base: &url.URL{Scheme: "http", Host: "x"}, Exclude: strings.Fields(test.patterns)})
		if err != nil {
			t.Fatalf("%s: %v", test.patterns, err)
		}
		var found []string
		tally, err := f.Walk(context.Background(), func(path string, p *Problem) { found = append(found, path) })
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		want := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(strings.Fields(test.gone), name) })
		slices.Sort(found)
		if !slices.Equal(found, want) || tally.Excluded != test.excluded {
			t.Errorf("without %q there are %q and %d are excluded, want %q and %d", test.patterns, found, tally.Excluded, want, test.excluded)
		}
	}
}

func TestAPatternThatCannotBeMeantIsRefused(t *testing.T) {
	for _, pattern := range []string{"", "/", ".", "..", "../up", "a/../b", "a//b", "[a", "{a,b", `a\`, "!a"} {
		if f, err := Open(t.TempDir(), Options{Exclude: []string{pattern}}); err == nil || !strings.Contains(err.Error(), ": exclude ") {
			t.Errorf("%q: %v", pattern, err)
			f.Close()
		}
	}
}
