package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/docsync"
	"github.com/weirlimit/weir/internal/folder"
	"github.com/weirlimit/weir/pacer"
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

// Interrupted while it waits for its budget, a sync ends at once; the next one sends the rest, and
// only that.
func TestAnInterruptedSyncGoesOnWhereItWas(t *testing.T) {
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
	start := time.Now()
	if code, err := p.signal(os.Interrupt); err != nil || code != cli.Failed {
		t.Fatalf("interrupted it ended with status %d, %v:\n%s", code, err, p.stderr)
	}
	if took := time.Since(start); took > patience/2 {
		t.Errorf("it ended after %v", took)
	}
	// A machine that is too busy to answer within a second is asked again, and may refuse that.
	for _, want := range []string{`sent 1000 documents, .* (3 requests, 0 refused|4 requests, 1 refused); `, `error: interrupted; run the same command again to go on`} {
		if !regexp.MustCompile(want).MatchString(p.stderr.String()) {
			t.Errorf("it did not say %q:\n%s", want, p.stderr)
		}
	}
	s.end(t)

	_, address, _ := strings.Cut(s.url, "://")
	s = serveIn(t, data, "--listen", address) // the contract's limits
	p = startSync(t, token, docs, "--to", s.url, "--share", filepath.Join(t.TempDir(), "view"))
	if code, err := p.wait(); err != nil || code != cli.Done || !strings.Contains(p.stderr.String(), "sent 100 documents, deleted 0, 1000 unchanged; 1 request, 0 refused;") {
		t.Errorf("the next ended with status %d, %v:\n%s", code, err, p.stderr)
	}
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

func TestProgressWithoutATerminalIsLines(t *testing.T) {
	var out bytes.Buffer
	p := newSyncProgress(&out)
	p.event(docsync.Read{Files: 3})
	p.event(docsync.SameURL{First: "a.md", Second: "a.html", URL: "https://x.example/a"})
	p.begin(3, 2, nil)
	p.event(docsync.Skipped{Problem: folder.Problem{Path: "a\x1b[2J.md", Reason: "it\nis bad", Hint: "mend it"}})
	in42 := time.Now().Add(41500 * time.Millisecond)
	for range 4 { // as many as are in flight
		p.wait(pacer.Wait{Reason: pacer.BudgetSpent, Until: in42})
		p.event(docsync.Retry{Reason: "it is down", After: time.Second})
	}
	p.event(docsync.Stored{Documents: 2})
	p.interrupted()
	p.end()
	p.interrupted()
	got := regexp.MustCompile(`\d+/s`).ReplaceAllString(out.String(), "N/s")
	if want := `warning: a.md and a.html have the same link, https://x.example/a; rename one, or give it a url in front matter
3 documents in 2 requests
bad file: a\x1b[2J.md: it\nis bad; mend it
budget spent, next window in 42 s
it is down; again in 1 s
2 of 2, 0 left, N/s
stopping: requests in flight may finish; interrupt again to end at once
`; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestTheLineBelowTheBarSaysWhyASyncWaits(t *testing.T) {
	p := newSyncProgress(&bytes.Buffer{})
	p.begin(1000, 10, func(int) time.Duration { return 3 * time.Minute })
	p.wait(pacer.Wait{Reason: pacer.BudgetSpent, Until: time.Now().Add(41500 * time.Millisecond)})
	want := []string{"budget spent, next window in 42 s · done in 3 min 0 s or more"}
	if got := p.below(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOtherFilesAreUpToDateOnlyIfThereAreAny(t *testing.T) {
	for _, c := range []struct {
		dry        cli.OnOff
		found, bad int
		want, hint string
	}{
		{false, 5, 2, "2 files could not be sent", "they are named above, with what to do about each; the others are up to date"},
		{false, 2, 2, "2 files could not be sent", "they are named above, with what to do about each"},
		{true, 5, 1, "1 file cannot be sent", "they are named above, with what to do about each"},
		{false, 50, 30, "30 files could not be sent", "the first 20 are named above; --json names all; the others are up to date"},
	} {
		flags := &syncFlags{dry: c.dry}
		var f *cli.Failure
		if err := flags.leftOut(c.bad, c.found); !errors.As(err, &f) || err.Error() != c.want || f.Hint != c.hint {
			t.Errorf("%+v: %v, %+v", c, err, f)
		}
	}
}
