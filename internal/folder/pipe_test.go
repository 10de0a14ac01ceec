//go:build unix

package folder

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestAPipeIsNotWaitedFor(t *testing.T) {
	dir := write(t, map[string]string{"a.md": "a"})
	if err := syscall.Mkfifo(filepath.Join(dir, "b.md"), 0o644); err != nil {
		t.Fatal(err)
	}
	f := open(t, dir)
	if _, err := f.Walk(context.Background(), func(string, *Problem) {}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(context.Background(), "b.md"); err == nil || !strings.Contains(err.Error(), "named pipe") {
		t.Errorf("a named pipe: %v", err)
	}
}

func TestNamesThatAreNoText(t *testing.T) {
	dir := write(t, map[string]string{"a\x1b[31m.md": "", "b\xff.md": "", "c\xff/d.md": "", "e.md": ""})
	bad := map[string]string{}
	var good []string
	if _, err := open(t, dir).Walk(context.Background(), func(path string, p *Problem) {
		if p == nil {
			good = append(good, path)
			return
		}
		bad[p.Path] = p.Reason
	}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"a\x1b[31m.md": "control character", "b\xff.md": "not UTF-8", "c\xff": "this folder is not UTF-8"} {
		if !strings.Contains(bad[path], want) {
			t.Errorf("%q: %q, want %q", path, bad[path], want)
		}
	}
	if len(good) != 1 || len(bad) != 3 {
		t.Errorf("good are %q, bad %q", good, bad)
	}
}

// A folder that cannot be read is reported as a folder, because its contents are unknown. Root can
// read it anyway.
func TestAFolderThatCannotBeRead(t *testing.T) {
	dir := write(t, map[string]string{"a/b.md": "", "c.md": ""})
	if err := os.Chmod(filepath.Join(dir, "a"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "a"), 0o755) }) // so that it can be removed
	var problems []*Problem
	if _, err := open(t, dir).Walk(context.Background(), func(_ string, p *Problem) {
		if p != nil {
			problems = append(problems, p)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 && (len(problems) != 1 || !problems[0].Folder || problems[0].Path != "a") {
		t.Errorf("problems %v", problems)
	}
}
