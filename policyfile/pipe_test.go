//go:build unix

package policyfile_test

import (
	"os"
	"path/filepath"
	"runtime"
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

func TestWhatIsNoConfigurationFileIsNotRead(t *testing.T) {
	dir := t.TempDir()
	fifo, big, unreadable := filepath.Join(dir, "fifo"), filepath.Join(dir, "big"), filepath.Join(dir, "unreadable")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(big, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(big, 1<<30); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(unreadable, []byte("a: 1\n"), 0); err != nil {
		t.Fatal(err)
	}
	cases := map[string]string{
		dir: "is a directory", fifo: "is no regular file", "/dev/zero": "is no regular file", big: "the file is too large: at most 1048576 bytes",
		filepath.Join(dir, "nowhere"): "no such file",
	}
	if os.Geteuid() != 0 { // root reads everything
		cases[unreadable] = "permission denied"
	}
	for path, want := range cases {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := policyfile.LoadSettings(path, func(*policyfile.Setting) { t.Errorf("%s has a setting", path) })
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 32<<20 {
			t.Errorf("%s: %d MiB were allocated", path, allocated>>20)
		}
	}
}
