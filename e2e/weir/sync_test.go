package weir

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cli"
)

// startSync starts the real weir sync.
func startSync(t *testing.T, token string, args ...string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append([]string{"sync"}, args...)...)
	cmd.Env = append(cleanEnv(), "WEIR_TOKEN="+token)
	p, err := launch(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// A waitingSync is a sync that has sent 1000 of 1100 documents and waits for its
// budget.
type waitingSync struct {
	docs, data, token string
	server            *server
	first             *process
}

func startWaitingSync(t *testing.T) *waitingSync {
	t.Helper()
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
	return &waitingSync{docs, data, token, s, p}
}

// finish restarts the server with the contract's limits, once the first sync has
// ended. The next sync sends only the rest.
func (w *waitingSync) finish(t *testing.T) {
	t.Helper()
	w.server.end(t)

	_, address, _ := strings.Cut(w.server.url, "://")
	s := serveIn(t, w.data, "--listen", address)
	p := startSync(t, w.token, w.docs, "--to", s.url, "--share", filepath.Join(t.TempDir(), "view"))
	if code, err := p.wait(); err != nil || code != cli.Done || !strings.Contains(p.stderr.String(), "sent 100 documents, deleted 0, 1000 unchanged; 1 request, 0 refused;") {
		t.Errorf("the next ended with status %d, %v:\n%s", code, err, p.stderr)
	}
}

// If a sync is interrupted while it waits for its budget, it ends at once. The next
// sync sends only the rest.
func TestAnInterruptedSyncResumes(t *testing.T) {
	run := startWaitingSync(t)
	p := run.first
	start := time.Now()
	if code, err := p.signal(os.Interrupt); err != nil || code != cli.Failed {
		t.Fatalf("interrupted it ended with status %d, %v:\n%s", code, err, p.stderr)
	}
	if took := time.Since(start); took > patience/2 {
		t.Errorf("it ended after %v", took)
	}
	// If a busy machine does not answer within a second, the request is repeated,
	// and may be refused.
	for _, want := range []string{`sent 1000 documents, .* (3 requests, 0 refused|4 requests, 1 refused); `, `error: interrupted; run the same command again to go on`} {
		if !regexp.MustCompile(want).MatchString(p.stderr.String()) {
			t.Errorf("it did not print %q:\n%s", want, p.stderr)
		}
	}
	run.finish(t)
}

// mintToken mints a token in a data directory.
func mintToken(t *testing.T, data string) string {
	t.Helper()
	stdout, stderr, code := weirCommand(t.Context(), t, "token", "create", "--workspace", "demo", "--data", data)
	if code != cli.Done {
		t.Fatalf("token create: status %d: %s", code, stderr)
	}
	return stdout
}
