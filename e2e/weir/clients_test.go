package weir

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// clientPrograms are the clients of docs/other-clients.md, by heading, each with
// the programs that run its blocks. A program is in testdata/clients: the page's
// block replaces the line SNIPPET, and the program sends 75 requests.
var clientPrograms = map[string][]clientProgram{
	"urllib3":     {{file: "python.py", run: []string{"python3"}}},
	"got":         {{file: "got.mjs", run: []string{"node"}}},
	"axios-retry": {{file: "axios-retry.mjs", run: []string{"node"}}},
	"ky":          {{file: "ky.mjs", run: []string{"node"}}},
	"undici":      {{file: "undici.mjs", run: []string{"node"}}},
	"Guzzle":      {{file: "guzzle.php", run: []string{"php"}}},
	"faraday":     {{file: "faraday.rb", run: []string{"ruby"}}},
	"resty":       {{file: "resty/main.go", run: []string{"go", "run"}}},
	"curl":        {{file: "curl.sh", run: []string{"sh"}, repeatsFailures: true, limit: 4}, {file: "curl-loop.sh", run: []string{"sh"}, limit: 4}},
	"wget":        {{file: "wget.sh", run: []string{"sh"}, limit: 4}},
}

type clientProgram struct {
	file string
	run  []string
	// Whether the page documents that it repeats requests that failed after
	// they were processed.
	repeatsFailures bool
	// Requests in 2 seconds; 0 means clientLimit. One that starts a process for each
	// request is too slow for that on a busy machine, and would not be refused.
	limit int
}

// name is the name of a program's limiter.
func (p clientProgram) name() string {
	first, _, _ := strings.Cut(p.file, ".")
	return strings.ReplaceAll(first, "/", "-")
}

const (
	clientRequests = 75
	clientLimit    = 10
	// Requests that the backend processes, and at first answers with 500, or not at
	// all.
	failsWith500  = 50
	failsSilently = 51
)

// Each block of the page works as documented. With the real client and the real
// server no request is lost, and no processed request is sent again.
func TestOtherClientsLoseNothing(t *testing.T) {
	t.Parallel() // the clients mostly wait
	blocks := clientBlocks(t)
	backend := &clientBackend{processed: map[string]map[int]int{}}
	upstream := httptest.NewServer(backend)
	defer upstream.Close()
	var policy strings.Builder
	policy.WriteString("limiters:\n")
	for _, programs := range clientPrograms {
		for _, p := range programs {
			fmt.Fprintf(&policy, "  - {name: %s, routes: [POST /%[1]s], windows: [%d per 2 seconds by ip]}\n", p.name(), cmp.Or(p.limit, clientLimit))
		}
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(policy.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveWeir(t, "--policy", file, "--upstream", upstream.URL, "--engine", "auto")
	dir := clientPackages(t)
	output := make(map[string]string)
	var mu sync.Mutex
	var all sync.WaitGroup
	for heading, programs := range clientPrograms { // all at once, because each mostly waits
		if len(blocks[heading]) != len(programs) {
			t.Fatalf("docs/other-clients.md has %d blocks under %q, and %d programs run them", len(blocks[heading]), heading, len(programs))
		}
		for i, p := range programs {
			program := p.write(t, dir, blocks[heading][i])
			all.Go(func() {
				out, err := execute(t.Context(), p, program, s.url+"/"+p.name())
				if err != nil {
					t.Errorf("%s: %v", p.file, err)
				}
				mu.Lock()
				defer mu.Unlock()
				output[p.name()] = out
			})
		}
	}
	all.Wait()
	for _, programs := range clientPrograms {
		for _, p := range programs {
			t.Run(p.name(), func(t *testing.T) { backend.check(t, p, output[p.name()]) })
		}
	}
	s.end(t)
	log := s.stdout.String() + s.stderr.String()
	for _, programs := range clientPrograms {
		for _, p := range programs {
			refusal := regexp.MustCompile(`(?m)^.*status=429 .*path=/` + regexp.QuoteMeta(p.name()) + ` .*$|^.*path=/` + regexp.QuoteMeta(p.name()) + ` .*status=429.*$`)
			if n := len(refusal.FindAllString(log, -1)); n < 3 {
				t.Errorf("%s was refused %d times: that proves little", p.name(), n)
			}
		}
	}
}

// clientBlocks returns the blocks of the page by their headings.
func clientBlocks(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(repository, "docs", "other-clients.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		if clientPrograms[heading] == nil {
			t.Errorf("docs/other-clients.md has the heading %q, and no program runs what is there", heading)
		}
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			all[heading] = append(all[heading], m[2])
		}
	}
	return all
}

// clientPackages returns a folder with the packages of the JavaScript clients, at
// the versions of package-lock.json.
func clientPackages(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "clients"))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	return dir
}

// write completes a program with a block of the page, in a folder with the clients'
// packages, and returns its path.
func (p clientProgram) write(t *testing.T, dir, block string) string {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(p.file))
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	marker := regexp.MustCompile(`(?m)^\s*(#|//) SNIPPET\n`)
	if len(marker.FindAll(program, -1)) != 1 {
		t.Fatalf("%s has no line SNIPPET, or several", p.file)
	}
	if err := os.WriteFile(path, []byte(marker.ReplaceAllLiteralString(string(program), block)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// execute runs a program in its folder and returns its output.
func execute(ctx context.Context, p clientProgram, path, target string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.run[0], append(slices.Clone(p.run[1:]), path)...)
	cmd.Dir = filepath.Dir(path)
	cmd.Env = append(os.Environ(), "TARGET="+target, "ANSWER="+path+".json")
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return string(out), err
}

// A clientBackend counts processed requests by path and number.
type clientBackend struct {
	mu        sync.Mutex
	processed map[string]map[int]int
}

func (b *clientBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var sent struct{ N int }
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &sent)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	if b.processed[r.URL.Path] == nil {
		b.processed[r.URL.Path] = map[int]int{}
	}
	b.processed[r.URL.Path][sent.N]++
	first := b.processed[r.URL.Path][sent.N] == 1
	b.mu.Unlock()
	switch {
	case first && sent.N == failsWith500:
		http.Error(w, "processed, and then something broke", http.StatusInternalServerError)
	case first && sent.N == failsSilently:
		panic(http.ErrAbortHandler)
	default:
		w.WriteHeader(http.StatusCreated)
	}
}

// check wants every request of a program processed once. If the page documents it,
// a request that failed was processed twice.
func (b *clientBackend) check(t *testing.T, p clientProgram, output string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	processed := b.processed["/"+p.name()]
	for n := 1; n <= clientRequests; n++ {
		want := 1
		if p.repeatsFailures && (n == failsWith500 || n == failsSilently) {
			want = 2
		}
		if processed[n] != want {
			t.Errorf("request %d was processed %d times, want %d", n, processed[n], want)
		}
	}
	if len(processed) != clientRequests || t.Failed() {
		t.Errorf("%d different requests were processed, want %d; the client printed:\n%s", len(processed), clientRequests, output)
	}
}
