package weir

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/internal/cli"
)

// A folder that the user may not write to is synced, without a file of its own.
// Root may write anywhere, so the test runs as user nobody.
func TestAReadOnlyFolderIsSynced(t *testing.T) {
	docs, state := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(docs, "a.md"), []byte("# A page"), 0o444); err != nil {
		t.Fatal(err)
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	s := serveWeir(t)
	cmd := exec.Command(path, "sync", docs, "--to", s.url)
	cmd.Env = append(cleanEnv(), "XDG_STATE_HOME="+state, "WEIR_TOKEN="+strings.TrimSpace(mintToken(t, s.data)))
	cmd.Dir = "/"
	if os.Geteuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if err := os.Chown(state, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{filepath.Dir(docs), filepath.Dir(state), filepath.Dir(path)} {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chmod(docs, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(docs, 0o755) }) // so that it can be removed
	p, err := launch(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	if code, err := p.wait(); err != nil || code != cli.Done || !strings.Contains(p.stderr.String(), "sent 1 document,") {
		t.Fatalf("it ended with status %d, %v:\n%s", code, err, p.stderr)
	}
	found, err := os.ReadDir(docs)
	if err != nil || len(found) != 1 {
		t.Errorf("the folder holds %v, %v", found, err)
	}
	kept, err := filepath.Glob(filepath.Join(state, "weir", "sync", "*"))
	if err != nil || len(kept) == 0 {
		t.Errorf("there is no state: %v", err)
	}
	if info, err := os.Stat(filepath.Join(state, "weir", "sync")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its folder is %v, %v", info, err)
	}
}
