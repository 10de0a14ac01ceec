package clients

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/e2e/child"
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// runTests runs the tests, and removes what they leave: the binary and the browser.
func runTests(m *testing.M) int {
	defer os.RemoveAll(home)
	defer chromium.close()
	return m.Run()
}

// home is the directory of the binary under test and of the browser.
var home = filepath.Join(os.TempDir(), fmt.Sprintf("weir-clients-%d", os.Getpid()))

// program builds the real program, once, and returns its path.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(home, "weir")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "../../cmd/weir").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// An api is a real server with a short window before a backend of the test, which also serves the
// page that calls it.
type api struct {
	url  string
	port string
	away string        // requests to /v1/wp/away are redirected there
	hang chan struct{} // requests to /v1/wp/hang are answered when it is closed
}

// serve starts an api that allows limit requests to /v1/wp in each window of some seconds.
func serve(t *testing.T, limit, seconds int) *api {
	t.Helper()
	a := &api{hang: make(chan struct{})}
	h := http.NewServeMux()
	h.Handle("/pace/", http.StripPrefix("/pace/", http.FileServer(http.Dir("../../clients/js"))))
	// only the modules that are always loaded
	h.HandleFunc("/part/", func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/part/")
		if !slices.Contains([]string{"pace.js", "budget.js", "routes.js", "fields.js"}, name) {
			http.NotFound(w, r)
			return
		}
		http.ServeFile(w, r, filepath.Join("../../clients/js", name))
	})
	h.Handle("/", http.FileServer(http.Dir("testdata")))
	h.HandleFunc("/v1/wp/", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/wp/away":
			http.Redirect(w, r, a.away, http.StatusTemporaryRedirect)
		case "/v1/wp/hang":
			select {
			case <-a.hang:
			case <-r.Context().Done():
			}
		}
	})
	backend := httptest.NewServer(h)
	t.Cleanup(backend.Close)
	a.start(t, fmt.Sprintf("limiters:\n  - name: wp-plugin\n    routes: [/v1/wp/*]\n    windows: [%d per %d seconds by ip]\n", limit, seconds),
		"--upstream", backend.URL)
	return a
}

// sample starts a server before the sample backend.
func sample(t *testing.T, policy string) *api {
	t.Helper()
	a := new(api)
	a.start(t, policy)
	return a
}

// start starts the program.
func (a *api) start(t *testing.T, policy string, args ...string) {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	args = append([]string{"serve", "--listen", address, "--admin", "off", "--data", filepath.Join(dir, "data"), "--policy", file}, args...)
	p, err := child.Start(exec.Command(bin, args...), filepath.Join(dir, "weir.log"), syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	a.url = "http://" + address
	a.port = address[strings.LastIndexByte(address, ':')+1:]
	err = p.Await("it answers", func() bool {
		r, err := http.Get(a.url + "/readyz")
		if err == nil {
			r.Body.Close()
		}
		return err == nil && r.StatusCode == http.StatusOK
	})
	if err != nil {
		t.Fatal(err)
	}
}

// command runs a command that must succeed.
func command(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*child.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}
