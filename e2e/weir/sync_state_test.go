package weir

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/docsync/paced"
)

// acknowledged waits until the state of a folder holds these documents.
func acknowledged(t *testing.T, docs, to string, ids ...string) {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	state, err := paced.StateFile(cli.ParseEnvironment(cleanEnv()), docs, u)
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		text, err := os.ReadFile(state)
		if err == nil && !slices.ContainsFunc(ids, func(id string) bool { return !strings.Contains(string(text), `"`+id+`"`) }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the state holds no %q: %v", ids, err)
		}
	}
}

// While a sync runs, no other sync of the same folder starts, under any name of the
// folder. If a sync is killed, the next resumes from its state, and no lock is
// left.
func TestAKilledSyncLeavesAStateAndNoLock(t *testing.T) {
	run := startWaitingSync(t)
	acknowledged(t, run.docs, run.server.url, "p0000.md", "p0999.md") // both batches
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(run.docs, link); err != nil {
		t.Fatal(err)
	}
	second := startSync(t, run.token, link, "--to", run.server.url)
	if code, err := second.wait(); err != nil || code != cli.Failed || !strings.Contains(second.stderr.String(), "another sync uses the state") {
		t.Errorf("a second one ended with status %d, %v:\n%s", code, err, second.stderr)
	}
	if _, err := run.first.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	run.finish(t)
}
