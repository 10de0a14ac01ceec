package docsync

import (
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/folder"
)

func TestWhatIsBehindALinkHasNotVanished(t *testing.T) {
	f := &found{
		seen:   map[string]bool{"here.md": true},
		unread: []string{"closed/"},
		passed: folder.Tally{Linked: []string{"link.md", "a/b"}},
	}
	known := map[string]digest{}
	for _, id := range []string{"here.md", "gone.md", "link.md", "a/b/c/d.md", "a/b.md", "a/bc/d.md", "closed/x/y.md", "closed.md"} {
		known[id] = digest{}
	}
	if got, want := f.vanished(known), []string{"a/b.md", "a/bc/d.md", "closed.md", "gone.md"}; !slices.Equal(got, want) {
		t.Errorf("vanished are %q, want %q", got, want)
	}
}

func TestTwoDocumentsOfOneLinkAreTold(t *testing.T) {
	w := newWorld(t, map[string]string{"same.md": "a", "same.html": "b", "other.md": "---\nurl: https://x.example/same\n---\n", "own.md": "---\nurl: https://x.example/same\n---\n"})
	var told []SameURL
	w.sync(func(r *run) {
		r.o.Report = func(e Event) {
			if a, ok := e.(SameURL); ok {
				told = append(told, a)
			}
		}
	})
	if len(told) != 1 || told[0].First != "same.html" || told[0].Second != "same.md" || told[0].URL == "" {
		t.Errorf("told %+v", told)
	}
}
