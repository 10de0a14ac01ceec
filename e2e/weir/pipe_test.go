//go:build unix

package weir

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// The first signal also ends a server that is not ready, because a file that it reads is a pipe
// into which nothing is written.
func TestASignalEndsAStartThatWaits(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--policy", "--jwt-key"} {
		pipe := filepath.Join(t.TempDir(), "pipe")
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(path, "serve", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:9", "--policy", "contract", flag, pipe)
		cmd.Env, cmd.Dir = cleanEnv(), t.TempDir()
		p, err := launch(cmd)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.kill)
		w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits until it is read
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if code, err := p.signal(syscall.SIGINT); err != nil || code != 0 {
			t.Errorf("%s: weir serve ended with status %d, %v; want 0:\n%s", flag, code, err, p.stderr)
		}
	}
}
