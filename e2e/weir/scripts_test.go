package weir

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weirlimit/weir/e2e/selfsigned"
)

// TestScripts runs the manual: each script in testdata is a page.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			path, err := binary()
			if err != nil {
				return err
			}
			env.Setenv("PATH", filepath.Dir(path)+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Values[running{}] = &process{}
			env.Vars = append(env.Vars, quickExit, anyAdmin, "XDG_STATE_HOME="+filepath.Join(env.WorkDir, ".state"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve":  scriptServe,
			"end":    scriptEnd,
			"status": scriptStatus,
			"fails":  scriptFails,

			"untilrefused": scriptUntilRefused,
			"certificate":  scriptCertificate,
		},
	})
}

// running is the key of a script's server.
type running struct{}

// scriptServe is the command
//
//	serve [NAME=VALUE…] [FLAG…]
//
// It runs weir serve on free ports of 127.0.0.1, waits until it listens, and sets
// $URL, $ADDR, and $ADMIN, the admin listener's URL. If the server is before an
// upstream, the script runs again on the other engine.
func scriptServe(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("serve always succeeds; to see it fail: fails CODE weir serve …")
	}
	env := []string{quickExit, anyAdmin, "HOME=" + ts.Getenv("HOME"), "PATH=" + ts.Getenv("PATH"), "TMPDIR=" + ts.Getenv("TMPDIR")}
	env = append(env, engineFor(scriptTest(ts), args)...)
	for len(args) > 0 && strings.HasPrefix(args[0], "WEIR_") {
		env, args = append(env, args[0]), args[1:]
	}
	path, err := lookPath(ts, "weir")
	ts.Check(err)
	cmd := exec.Command(path, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Env, cmd.Dir = env, ts.MkAbs(".")
	p, err := launch(cmd)
	ts.Check(err)
	ts.Defer(p.kill)
	m, err := p.stdout.await(listening)
	if err != nil {
		ts.Fatalf("%v\nstandard error:\n%s", err, p.stderr)
	}
	*ts.Value(running{}).(*process) = *p
	ts.Setenv("URL", m[1])
	_, addr, _ := strings.Cut(m[1], "://")
	ts.Setenv("ADDR", addr)
	_, err = p.stdout.await(ready)
	ts.Check(err)
	if m := adminAt.FindStringSubmatch(p.stdout.String()); m != nil {
		ts.Setenv("ADMIN", m[1])
	}
}

// scriptTest is the name of a script's test.
func scriptTest(ts *testscript.TestScript) string {
	return "TestScripts/" + strings.TrimPrefix(filepath.Base(ts.Getenv("WORK")), "script-")
}

// scriptEnd is the command
//
//	end [TERM|INT|KILL]
//
// It ends the server, checks for exit status 0 unless the server is killed, and
// writes its output to the files serve.out and serve.err.
func scriptEnd(ts *testscript.TestScript, _ bool, args []string) {
	sig, want := os.Signal(syscall.SIGTERM), 0
	switch {
	case len(args) > 0 && args[0] == "INT":
		sig = os.Interrupt
	case len(args) > 0 && args[0] == "KILL":
		sig, want = os.Kill, -1
	}
	p := ts.Value(running{}).(*process)
	code, err := p.signal(sig)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("serve.out"), []byte(p.stdout.String()), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("serve.err"), []byte(p.stderr.String()), 0o600))
	if code != want {
		ts.Fatalf("weir serve ended with status %d after %v:\n%s", code, sig, p.stderr)
	}
}

// scriptFails is the command
//
//	fails CODE COMMAND…
//
// It runs a command that must end with the status, with an empty standard output
// and an error on standard error.
func scriptFails(ts *testscript.TestScript, neg bool, args []string) {
	scriptStatus(ts, neg, args)
	stderr := ts.ReadFile("stderr")
	if !strings.HasPrefix(stderr, "error: ") && !strings.Contains(stderr, "\nerror: ") {
		ts.Fatalf("%s: standard error has no line that begins with error:", strings.Join(args[1:], " "))
	}
	if stdout := ts.ReadFile("stdout"); stdout != "" {
		ts.Fatalf("%s: failed, and yet printed on standard output", strings.Join(args[1:], " "))
	}
}

// scriptStatus is the command
//
//	status CODE COMMAND…
//
// It runs a command that must end with the status.
func scriptStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status CODE COMMAND…")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if exit, ok := err.(*exec.ExitError); ok {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got := fmt.Sprint(code); got != args[0] {
		ts.Fatalf("%s ended with status %s, want %s", strings.Join(args[1:], " "), got, args[0])
	}
}

// lookPath finds a command on the script's PATH.
func lookPath(ts *testscript.TestScript, name string) (string, error) {
	for _, dir := range strings.Split(ts.Getenv("PATH"), string(os.PathListSeparator)) {
		path := dir + string(os.PathSeparator) + name
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s on the PATH of the script", name)
}

// scriptUntilRefused is the command
//
//	untilrefused FILE
//
// It uses the API token in FILE until the server refuses it, which must be within a
// second of its revocation. Half a second more is for a slow machine.
func scriptUntilRefused(ts *testscript.TestScript, _ bool, args []string) {
	token := strings.TrimSpace(ts.ReadFile(args[0]))
	ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond) // a token has 60 requests a minute
	defer again.Stop()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, ts.Getenv("URL")+"/v1/wp/status", nil)
		ts.Check(err)
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(r)
		ts.Check(err)
		ts.Check(response.Body.Close())
		if response.StatusCode == http.StatusUnauthorized {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			ts.Fatalf("the token still works after a second")
		}
	}
}

// scriptCertificate is the command
//
//	certificate CERT KEY
//
// It writes a self-signed certificate for 127.0.0.1, and its key.
func scriptCertificate(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(writeCertificate(ts.MkAbs(args[0]), ts.MkAbs(args[1])))
}

// writeCertificate writes a self-signed certificate for 127.0.0.1, and for hosts.
func writeCertificate(certFile, keyFile string, hosts ...string) error {
	_, err := selfsigned.Write(certFile, keyFile, hosts...)
	return err
}

func TestNoScriptEndsEarly(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil || len(scripts) < 10 {
		t.Fatalf("%d scripts, %v", len(scripts), err)
	}
	for _, path := range scripts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if word, _, _ := strings.Cut(line, " "); word == "stop" || word == "skip" {
				t.Errorf("%s:%d: %s ends the script as passed, whatever follows; the server is ended by: end", path, i+1, word)
			}
		}
	}
}
