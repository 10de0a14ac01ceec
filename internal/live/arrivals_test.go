package live

import (
	"os"
	"path/filepath"
	"testing"
)

// Without events a file still settles, and is not taken for renamed.
func TestAFileSettlesWithoutEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte("limiters: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f := &watched{path: path}
	f.follow()
	defer f.close()
	f.arrivals.close()
	if f.arrived(info) || f.whole != nil {
		t.Error("it is taken for written or renamed")
	}
}
