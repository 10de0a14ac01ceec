package report

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A page takes the place of a page, through links too, and of nothing else.
func TestAPageReplacesOnlyAPage(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"empty.html": "", "old.html": "<!DOCTYPE html><p>", "notes.html": "notes"} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"link.html": "old.html", "astray.html": "notes.html", "dangling.html": "nothing.html"} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, allowed := range map[string]bool{"new.html": true, "empty.html": true, "link.html": true, "notes.html": false, "astray.html": false, "dangling.html": false, ".": false} {
		t.Run(name, func(t *testing.T) {
			page, err := CreatePage(at(name))
			if (err == nil) != allowed {
				t.Errorf("%s: %v, allowed is %v", name, err, allowed)
			}
			if err != nil {
				return
			}
			if err := page.Write(func(w io.Writer) error { _, err := io.WriteString(w, "<!doctype html>new"); return err }); err != nil {
				t.Error(err)
			}
			page.Discard()
			if text, err := os.ReadFile(at(name)); err != nil || string(text) != "<!doctype html>new" {
				t.Errorf("%s holds %q, %v", name, text, err)
			}
		})
	}
	if link, err := os.Readlink(at("link.html")); err != nil || link != "old.html" {
		t.Errorf("the link is %q, %v", link, err)
	}
	page, err := CreatePage(at("old.html"))
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("the disk is full")
	if err := page.Write(func(w io.Writer) error { _, _ = io.WriteString(w, "half"); return full }); !errors.Is(err, full) {
		t.Errorf("a page that cannot be written gives %v", err)
	}
	if text, _ := os.ReadFile(at("old.html")); string(text) != "<!doctype html>new" {
		t.Errorf("half a page has taken the place of a page: %q", text)
	}
	if left, _ := filepath.Glob(at(".weir-simulate-*")); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}
