package redistest

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"
)

//go:embed preload/clock.c
var clockSource []byte

// newClock returns a clock at 1970, and the environment variables for a process that uses it.
func newClock(t testing.TB) (*Clock, []string) {
	t.Helper()
	dir := t.TempDir()
	source, library, shared := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so"), filepath.Join(dir, "now")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-O1", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("compile the clock: %v (scripts/deps installs what tests need)\n%s", err, out)
	}
	f, err := os.Create(shared)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(8); err != nil {
		t.Fatal(err)
	}
	// Never unmapped: a goroutine that outlives its test may still read the time.
	mapped, err := syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatalf("map the clock: %v", err)
	}
	clock := &Clock{(*atomic.Int64)(unsafe.Pointer(&mapped[0]))}
	return clock, []string{"LD_PRELOAD=" + library, "WEIR_CLOCK=" + shared}
}
