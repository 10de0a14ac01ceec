package weir

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
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

// While a sync runs no other one of the same folder does, by whatever name it is called; killed, it
// leaves a state from which the next goes on, and no lock.
func TestASyncThatIsKilledLeavesAStateAndNoLock(t *testing.T) {
	docs, data, policy := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "policy.yaml")
	for i := range 1100 {
		if err := os.WriteFile(filepath.Join(docs, fmt.Sprintf("p%04d.md", i)), []byte("# A page"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const threeAnHour = "limiters:\n  - name: wp-plugin\n    routes: [/v1/wp/*]\n    windows: [3 per hour by token or ip]\n"
	if err := os.WriteFile(policy, []byte(threeAnHour), 0o644); err != nil {
		t.Fatal(err)
	}
	s := serveIn(t, data, "--policy", policy)
	token := strings.TrimSpace(mintToken(t, data))
	p := startSync(t, token, docs, "--to", s.url)
	if _, err := p.stderr.await(regexp.MustCompile(`(?m)^(?:budget spent|refused), next window in (1 h 0 min|59 min \d+ s)$`)); err != nil {
		t.Fatal(err)
	}
	acknowledged(t, docs, s.url, "p0000.md", "p0999.md") // both batches
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(docs, link); err != nil {
		t.Fatal(err)
	}
	second := startSync(t, token, link, "--to", s.url)
	if code, err := second.wait(); err != nil || code != cli.Failed || !strings.Contains(second.stderr.String(), "another sync uses the state") {
		t.Errorf("a second one ended with status %d, %v:\n%s", code, err, second.stderr)
	}
	if _, err := p.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.end(t)

	_, address, _ := strings.Cut(s.url, "://")
	s = serveIn(t, data, "--listen", address) // the contract's limits
	p = startSync(t, token, docs, "--to", s.url, "--share", filepath.Join(t.TempDir(), "view"))
	if code, err := p.wait(); err != nil || code != cli.Done || !strings.Contains(p.stderr.String(), "sent 100 documents, deleted 0, 1000 unchanged; 1 request, 0 refused;") {
		t.Errorf("the next ended with status %d, %v:\n%s", code, err, p.stderr)
	}
}
