//go:build unix

package acme

import (
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"
)

// checkOwners checks that all files below a directory belong to its owner.
func checkOwners(t *testing.T, dir string) {
	t.Helper()
	var of uint32
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		uid := info.Sys().(*syscall.Stat_t).Uid
		if path == dir {
			of = uid
		}
		if uid != of {
			t.Errorf("%s belongs to %d, and %s to %d", path, uid, dir, of)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
