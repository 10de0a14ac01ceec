package weir

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// launchConfigured runs weir serve with the arguments in a directory, and waits until it listens.
func launchConfigured(t *testing.T, dir string, env []string, args ...string) (p *process, url string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append([]string{"serve"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(cleanEnv(), env...)
	if p, err = launch(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	m, err := p.stdout.await(listening)
	if err != nil {
		t.Fatalf("%v\nstandard error:\n%s", err, p.stderr)
	}
	return p, m[1]
}

// askHost sends a request for a host, and returns the status and the body.
func askHost(t *testing.T, url, host string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		body = nil
	}
	return fmt.Sprint(response.StatusCode, " ", string(body))
}

// exampleConfig copies the example with other ports, and returns its directory. Each backend
// answers with its name.
func exampleConfig(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(examples+"serve")); err != nil {
		t.Fatal(err)
	}
	replaced := []string{"127.0.0.1:8080", "127.0.0.1:0", "127.0.0.1:8081", "127.0.0.1:0"}
	for port, name := range map[string]string{"9001": "api", "9002": "api", "9003": "site"} {
		backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
		t.Cleanup(backend.Close)
		replaced = append(replaced, "http://127.0.0.1:"+port, backend.URL)
	}
	path := filepath.Join(dir, "weir.yaml")
	text := strings.NewReplacer(replaced...).Replace(readText(t, path))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The example is served from another directory: its policy is found beside it, each host has its
// backend and its limit, and its log is JSON.
func TestTheExampleOfAConfigurationIsServed(t *testing.T) {
	dir, data := exampleConfig(t), t.TempDir()
	p, url := launchConfigured(t, data, []string{"WEIR_DATA=" + data}, "--config", filepath.Join(dir, "weir.yaml"))
	for i, want := range []string{"200 api", "200 api", "200 api", "429 "} {
		if got := askHost(t, url, "API.example.com:80"); got != want {
			t.Errorf("api.example.com, request %d: %q, want %q", i+1, got, want)
		}
	}
	for i, want := range []string{"200 site", "200 site", "429 "} {
		if got := askHost(t, url, "shop.example.com"); got != want {
			t.Errorf("shop.example.com, request %d: %q, want %q", i+1, got, want)
		}
	}
	if code, err := p.signal(syscall.SIGTERM); code != 0 || err != nil {
		t.Errorf("it ended with %d, %v", code, err)
	}
	if !strings.Contains(p.stderr.String(), `{"time":`) {
		t.Errorf("the log is not JSON:\n%s", p.stderr)
	}
}

// What the example shows in its first lines is what the commands print.
func TestTheCommandsOfTheConfigurationExamplePrintWhatItShows(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	commands := shownCommands(readText(t, examples+"serve/weir.yaml"))
	if len(commands) != 2 {
		t.Fatalf("%d commands are shown", len(commands))
	}
	dir, err := filepath.Abs(examples + "serve")
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + filepath.Dir(path) + ":" + os.Getenv("PATH")}
	if got := shell(t, dir, env, commands[0].command); got != commands[0].prints {
		t.Errorf("%s prints\n%s\nand the example shows\n%s", commands[0].command, got, commands[0].prints)
	}
}

// A change of the file has no effect on SIGHUP, which the log says; the policy is read again.
func TestAReloadReadsThePolicyAndNotTheConfiguration(t *testing.T) {
	dir, data := exampleConfig(t), t.TempDir()
	path := filepath.Join(dir, "weir.yaml")
	p, url := launchConfigured(t, data, []string{"WEIR_DATA=" + data, "WEIR_CONFIG=" + path})
	replaceFile(t, path, "lisen: broken\n")
	policy := filepath.Join(dir, "policy.yaml")
	replaceFile(t, policy, strings.Replace(readText(t, policy), "3 per minute", "1 per minute", 1))
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`SIGHUP: the policy is read again. --config and key files are read at the start only`, `the policy was replaced; counts continue`} {
		if _, err := p.stderr.await(regexp.MustCompile(want)); err != nil {
			t.Fatalf("%s: %v: %s", want, err, p.stderr)
		}
	}
	for i, want := range []string{"200 api", "429 "} {
		if got := askHost(t, url, "api.example.com"); got != want {
			t.Errorf("request %d: %q, want %q", i+1, got, want)
		}
	}
}
