//go:build unix

package weir

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// If root runs a command or a server on the data directory of a service, the service can read and
// write all that they leave there. For other users every file is their own.
func TestFilesBelongToTheOwnerOfTheDataDirectory(t *testing.T) {
	data := t.TempDir()
	if os.Geteuid() == 0 {
		if err := os.Chown(data, 61234, 61235); err != nil {
			t.Fatal(err)
		}
	}
	apiToken(t, data, "acme") // makes the database
	s := serveIn(t, data)
	withRole(t, s, "read") // replaces the admin tokens
	s.operate(t, "key", "grant", "--ip", "192.0.2.7", "--limiter", "widget-init", "--times", "2", "--for", "1h", "--why", "a test")
	apiToken(t, data, "acme")
	if dir, files := ownersIn(t, data); len(files) < 14 {
		t.Errorf("the data directory has %v", files)
	} else {
		for name, of := range files {
			if of != dir {
				t.Errorf("%s belongs to %v, and the data directory to %v", name, of, dir)
			}
		}
	}
	s.end(t)
}

// ownersIn returns the user of a directory, and those of its files by name.
func ownersIn(t *testing.T, dir string) (uid uint32, files map[string]uint32) {
	t.Helper()
	of := func(path string) uint32 {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Uid
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files = make(map[string]uint32)
	for _, e := range entries {
		files[e.Name()] = of(filepath.Join(dir, e.Name()))
	}
	return of(dir), files
}
