//go:build unix

package docsync

import (
	"path/filepath"
	"syscall"
	"testing"
)

func TestAPipeIsNoStateAndNotWaitedFor(t *testing.T) {
	w := newWorld(t, many(1, "x"))
	w.state = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(w.state, 0o600); err != nil {
		t.Fatal(err)
	}
	fails(t, w.sync().err, "is not a regular file", "--state")
	fails(t, w.sync(func(r *run) { r.o.DryRun = true }).err, "is not a regular file", "--state")
}
