package page

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("before\n<!-- x:begin -->\nold\n<!-- x:end -->\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Fill(path, "x", Table([]string{"µs", "$1"}, [][]string{{"1", "two"}})); err != nil {
		t.Fatal(err)
	}
	const want = "before\n<!-- x:begin -->\n| µs | $1  |\n|---|---|\n| 1  | two |\n<!-- x:end -->\nafter\n"
	if got, err := os.ReadFile(path); string(got) != want {
		t.Errorf("the page is %q, %v, want %q", got, err, want)
	}
	if err := Fill(path, "y", "text"); err == nil {
		t.Error("a page without a place for the text was written")
	}
}
