//go:build unix

package policyfile_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/policyfile"
)

// Without the check, Load would wait until something writes to the pipe.
func TestAPipeIsNoFileOfNetworks(t *testing.T) {
	dir := folder(t, map[string]string{"policy.yaml": withFields(`deny: ["@pipe"]`)})
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := policyfile.Load(filepath.Join(dir, "policy.yaml")); err == nil || !strings.Contains(err.Error(), "pipe is no regular file") {
		t.Errorf("got %v", err)
	}
}
