package weir

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/internal/cli"
)

// operate runs a command against a server's admin listener, as an operator on its
// machine does.
func (s *server) operate(t *testing.T, args ...string) string {
	t.Helper()
	m, err := s.stdout.await(adminAt)
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := weirCommand(t.Context(), t, append(args, "--admin", m[1], "--data", s.data)...)
	if code != cli.Done {
		t.Fatalf("%v: status %d:\n%s", args, code, stderr)
	}
	return stdout
}

// An operator's change on one node reaches the other within two seconds, and
// survives a restart of both.
func TestAResetAndAGrantReachEveryNode(t *testing.T) {
	const limit = 6
	args := []string{"--store", redistest.Start(t).URL(), "--upstream", accepting(t), "--policy", allByAddress(t, limit), patient}
	one, two := serveWeir(t, args...), serveWeir(t, args...)
	spend := func(s *server, want int) {
		t.Helper()
		if n := admitted(t, flood(t, s.url, 3*limit, anyCall)); n != want {
			t.Fatalf("%d are admitted, want %d", n, want)
		}
	}
	// For two seconds the other node may answer as before. A request that it
	// refuses spends nothing.
	eventually := func(s *server) {
		t.Helper()
		deadline := time.After(2*time.Second + patience/10) // the rest is for a slow machine
		again := time.NewTicker(50 * time.Millisecond)
		defer again.Stop()
		for {
			if admitted(t, flood(t, s.url, 1, anyCall)) == 1 {
				return
			}
			select {
			case <-deadline:
				t.Fatal("the change has not reached the other node")
			case <-again.C:
			}
		}
	}
	spend(two, limit)
	one.operate(t, "key", "reset", "--ip", "127.0.0.1", "--limiter", "all", "--why", "a test")
	eventually(two)
	spend(two, limit-1)
	one.operate(t, "key", "grant", "--ip", "127.0.0.1", "--limiter", "all", "--times", "2", "--for", "1h", "--why", "a test")
	eventually(two)
	spend(two, limit-1)
	if shown := two.operate(t, "key", "show", "--ip", "127.0.0.1"); !strings.Contains(shown, fmt.Sprintf(" %d ", 2*limit)) || !strings.Contains(shown, "granted until") {
		t.Errorf("the other node shows:\n%s", shown)
	}
	one.end(t)
	two.end(t)
	three := serveWeir(t, args...)
	if shown := three.operate(t, "key", "show", "--ip", "127.0.0.1"); !strings.Contains(shown, "granted until") {
		t.Errorf("after a restart:\n%s", shown)
	}
}

// The text of a server or a caller cannot move the cursor, or break a line.
func TestControlCharactersDoNotReachTheTerminal(t *testing.T) {
	const evil = "\x1b[31m\x00\r\n\u202e\u2066\x9b"
	long := strings.Repeat(evil, 1024)
	type reply struct {
		status int
		body   string
	}
	var answer atomic.Pointer[reply]
	handler, token := proving(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a := answer.Load()
		w.WriteHeader(a.status)
		_, _ = w.Write([]byte(a.body))
	}))
	s := httptest.NewServer(handler)
	defer s.Close()
	quoted := strings.NewReplacer("\x1b", `\u001b`, "\x00", `\u0000`, "\r", `\r`, "\n", `\n`).Replace(long)
	ask := func(args ...string) string {
		stdout, stderr, _ := weirCommand(t.Context(), t, append(args, "--admin", s.URL, "--admin-token", token)...)
		return stdout + stderr
	}
	check := func(output string, lines int) {
		t.Helper()
		if strings.ContainsAny(output, "\x1b\x00\r\u202e\u2066") || strings.Count(output, "\n") > lines || len(output) > 20<<10 {
			t.Errorf("%d bytes, %d lines: %.300q", len(output), strings.Count(output, "\n"), output)
		}
	}
	answer.Store(&reply{http.StatusOK, `{"windows":[{"limiter":"` + quoted + `","window":"` + quoted + `"},{"limiter":"a","lacks":"` + quoted + `"}]}`})
	check(ask("key", "show", "--ip", "192.0.2.7"), 3)
	answer.Store(&reply{http.StatusOK, `{"limiter":"` + quoted + `","token":"` + quoted + `","changed":"` + quoted + `"}`})
	check(ask("denial", "x"), 12)
	answer.Store(&reply{http.StatusNotFound, `{"error":{"code":"x","message":"` + quoted + `"}}`})
	check(ask("key", "show", "--agent", evil[:4]+"x"), 2)
	answer.Store(&reply{http.StatusNotFound, long})
	check(ask("key", "show", "--ip", "192.0.2.7"), 2)
}

// If other users can read the token file, a command rejects it.
func TestAnOperatorsTokenMustBePrivate(t *testing.T) {
	s := serveWeir(t, "--policy", "contract", "--upstream", accepting(t))
	if err := os.Chmod(s.data+"/admin.token", 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := s.stdout.await(adminAt)
	if err != nil {
		t.Fatal(err)
	}
	_, stderr, code := weirCommand(t.Context(), t, "key", "show", "--ip", "127.0.0.1", "--admin", m[1], "--data", s.data)
	if code != cli.Failed || !strings.Contains(stderr, "chmod 600") {
		t.Errorf("status %d: %s", code, stderr)
	}
}
