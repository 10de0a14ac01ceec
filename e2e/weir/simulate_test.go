package weir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cli"
)

// later returns log lines, ten a second, from so many seconds after the log's
// start.
func later(seconds, lines int) string {
	var b strings.Builder
	begin := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	for n := range lines {
		fmt.Fprintf(&b, "192.0.2.7 - - [%s] \"POST /api/v1/widget/leads HTTP/1.1\" 201 12 \"-\" \"curl/8\"\n",
			begin.Add(time.Duration(seconds+n/10)*time.Second).Format("02/Jan/2006:15:04:05 -0700"))
	}
	return b.String()
}

// If a replay is interrupted, its report says so, no page is written, and no gate
// passes.
func TestAnInterruptedReplayReportsWhatItRead(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(path, "simulate", "-", "--json", "--html", "page.html", "--fail-if", "malformed > 0")
	cmd.Dir, cmd.Env = dir, cleanEnv()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// It has ended, or the test has failed.
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	// More than a pipe holds, so the command is reading.
	if _, err := io.WriteString(in, later(0, 20_000)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for n := 2000; err == nil; n += 100 { // until the reader is gone
		_, err = io.WriteString(in, later(n, 1000))
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != cli.Failed {
		t.Fatalf("it ended with %v, want status 1:\n%s", err, &errs)
	}
	if output := errs.String(); !strings.Contains(output, "error: the log was read in part: interrupted\nhint: the report above covers what was read; no page was written\n") || strings.Contains(output, "gate") {
		t.Errorf("it prints\n%s", output)
	}
	var found struct {
		Partial string
		Gates   []any
		Policy  struct{ Requests int64 }
	}
	if err := json.Unmarshal(out.Bytes(), &found); err != nil || found.Partial != "interrupted" || len(found.Gates) != 0 || found.Policy.Requests == 0 {
		t.Errorf("%v: %+v", err, found)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

// A replay that waits for input from a pipe still ends on a signal.
func TestAReplayThatWaitsForAQuietPipeIsInterruptedAtOnce(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for lines, want := range map[int]string{0: "error: interrupted before a line was read\n", 100: "error: the log was read in part: interrupted\n"} {
		cmd := exec.Command(path, "simulate", "-", "--json")
		cmd.Env = cleanEnv()
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		from, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin = from
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		if _, err := io.WriteString(in, later(0, lines)); err != nil {
			t.Fatal(err)
		}
		var status error
		ended := make(chan struct{})
		go func() { status = cmd.Wait(); close(ended) }()
		for wait, tries := time.NewTicker(200*time.Millisecond), 0; ; tries++ {
			select {
			case <-ended:
			case <-wait.C:
				if tries == 2 { // once: a second signal would end it anyway
					_ = cmd.Process.Signal(syscall.SIGTERM)
				}
				if tries < 60 {
					continue
				}
				t.Fatalf("%d lines: it has not ended", lines)
			}
			break
		}
		var exit *exec.ExitError
		if !errors.As(status, &exit) || exit.ExitCode() != cli.Failed || !strings.Contains(errs.String(), want) {
			t.Errorf("%d lines: it ended with %v:\n%s", lines, status, &errs)
		}
		_ = errors.Join(in.Close(), from.Close())
	}
}

// If a user may not read the log, the page is not readable either. The umask
// decides; if the page exists, its mode is kept.
func TestAPagesModeFollowsTheUmask(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "access.log")
	if err := os.WriteFile(log, []byte(later(0, 5)), 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		umask       string
		there, want os.FileMode // 0 if no page exists
	}{
		{"077", 0, 0o600}, {"027", 0, 0o640}, {"022", 0, 0o644}, {"022", 0o600, 0o600}, {"077", 0o644, 0o644},
	} {
		page := filepath.Join(dir, fmt.Sprintf("%s-%o.html", c.umask, c.there))
		if c.there != 0 {
			if err := errors.Join(os.WriteFile(page, []byte("<!doctype html>"), c.there), os.Chmod(page, c.there)); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("sh", "-c", `umask $0 && exec "$@"`, c.umask, path, "simulate", log, "--html", page)
		cmd.Env = cleanEnv()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		if info, err := os.Stat(page); err != nil || info.Mode() != c.want || info.Size() < 1000 {
			t.Errorf("with umask %s and a page of mode %o the mode is %v, %v; want mode %o", c.umask, c.there, info.Mode(), err, c.want)
		}
	}
}
