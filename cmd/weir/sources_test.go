package main

import (
	"os"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

// The page about policies lists the key sources in the order of their table, with
// its descriptions.
func TestThePageListsTheTableOfKeySources(t *testing.T) {
	page, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "| key source | counts by |\n|---|---|\n")
	rows, _, _ := strings.Cut(rest, "\n\n")
	lines := strings.Split(rows, "\n")
	for i, s := range weir.Sources() {
		if want := "| `" + s.String() + "` | " + s.Counts; i >= len(lines) || !strings.HasPrefix(lines[i], want) {
			t.Errorf("row %d does not begin with %q:\n%s", i+1, want, rows)
		}
	}
	if len(lines) != len(weir.Sources()) {
		t.Errorf("%d rows of %d sources", len(lines), len(weir.Sources()))
	}
}
