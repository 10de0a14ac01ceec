package weir

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// onePolicy is a policy of one window for all requests.
func onePolicy(limit int) string {
	return fmt.Sprintf("limiters:\n  - name: all\n    routes: [/*]\n    windows: [%d per hour by ip]\n", limit)
}

// replaceFile renames a new file with that text to path, as editors do.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// A tallyman repeats one request all the time, and records the counts in the
// answers.
type tallyman struct {
	limits map[int]bool // the limits that an answer may have

	mu      sync.Mutex
	counts  []int // Limit - Remaining of each admitted request
	refused int
	wrong   []string
}

func (c *tallyman) ask(client *http.Client, url string) {
	// The client would repeat a GET by itself.
	response, err := client.Post(url, "text/plain", nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.wrong = append(c.wrong, err.Error())
		return
	}
	defer response.Body.Close()
	limit, noLimit := strconv.Atoi(response.Header.Get("X-RateLimit-Limit"))
	remaining, noRemaining := strconv.Atoi(response.Header.Get("X-RateLimit-Remaining"))
	switch {
	case noLimit != nil || noRemaining != nil || !c.limits[limit]:
		c.wrong = append(c.wrong, fmt.Sprintf("status %d with fields of no policy: %v", response.StatusCode, response.Header))
	case response.StatusCode == http.StatusTooManyRequests && remaining == 0:
		c.refused++
	case response.StatusCode == http.StatusNoContent:
		c.counts = append(c.counts, limit-remaining)
	default:
		c.wrong = append(c.wrong, fmt.Sprintf("status %d: %v", response.StatusCode, response.Header))
	}
}

// check verifies that every admitted request was counted once: sorted, the counts
// are 1, 2, 3 and so on.
func (c *tallyman) check(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.wrong[:min(len(c.wrong), 5)] {
		t.Error(w)
	}
	if len(c.wrong) > 0 {
		t.Fatalf("%d requests failed", len(c.wrong))
	}
	slices.Sort(c.counts)
	for i, n := range c.counts {
		if n != i+1 {
			t.Fatalf("of %d admitted requests the %dth has the count %d", len(c.counts), i+1, n)
		}
	}
}

// nothingBehind is an upstream that answers 204.
func nothingBehind(t *testing.T) string {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(upstream.Close)
	return upstream.URL
}

func TestAPolicyIsReplacedUnderLoadAndEveryCountIsKept(t *testing.T) {
	const low, high, swaps = 1_000_000, 2_000_000, 50
	upstream := nothingBehind(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	replaceFile(t, policy, onePolicy(low))
	s := serveWeir(t, "--access-log=off", "--policy", policy, "--upstream", upstream)

	callers := &tallyman{limits: map[int]bool{low: true, high: true}}
	var ended atomic.Bool
	var asking sync.WaitGroup
	for range 3 {
		asking.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for !ended.Load() {
				callers.ask(client, s.url+"/x")
			}
		})
	}
	hangUp := func(line string, times int) {
		t.Helper()
		if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if _, err := s.stderr.await(regexp.MustCompile(fmt.Sprintf(`(?s)(?:%s.*){%d}`, line, times))); err != nil {
			t.Fatalf("%v; it printed:\n%s", err, s.stderr)
		}
	}
	for n := range swaps {
		replaceFile(t, policy, onePolicy([]int{high, low}[n%2]))
		hangUp("was replaced; counts continue", n+1)
	}
	replaceFile(t, policy, "limiters:\n  - name: all\n    windows: [0 per hour by ip]\n")
	hangUp("problem of the rejected policy.*policy.yaml:3:15:", 1)
	ended.Store(true)
	asking.Wait()
	callers.check(t)
	if len(callers.counts) < swaps || callers.refused != 0 {
		t.Fatalf("%d requests were admitted, %d refused", len(callers.counts), callers.refused)
	}

	// The watch finds the next file: a limit below the count refuses with Remaining
	// 0.
	callers.limits[1] = true
	replaceFile(t, policy, onePolicy(1))
	if _, err := s.stderr.await(regexp.MustCompile(`by="?watch`)); err != nil {
		t.Fatal(err)
	}
	callers.ask(http.DefaultClient, s.url+"/x")
	if callers.refused != 1 {
		t.Errorf("a limit below the count admits")
	}
	// After a restart with another policy the count continues.
	s.end(t)
	replaceFile(t, policy, onePolicy(high))
	again := serveIn(t, s.data, "--access-log=off", "--policy", policy, "--upstream", upstream)
	callers.ask(http.DefaultClient, again.url+"/x")
	callers.check(t)
	again.end(t)
}

// A window that ends by another calendar is another window, and the log names it.
func TestAReloadNamesTheWindowsThatBeginAnew(t *testing.T) {
	in := func(zone string) string {
		return "limiters:\n  - name: all\n    routes: [/*]\n    windows: [1 per calendar day in " + zone + " by ip, 9 per minute by ip]\n"
	}
	policy := policyFile(t, in("Europe/Berlin"))
	s := serveWeir(t, "--access-log=off", "--policy", policy, "--upstream", nothingBehind(t))
	ask := func(want int) {
		t.Helper()
		response, err := http.Get(s.url)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("status %d, want %d", response.StatusCode, want)
		}
	}
	ask(http.StatusNoContent)
	ask(http.StatusTooManyRequests)
	replaceFile(t, policy, in("Europe/Vienna"))
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	line := `msg="the policy was replaced; counts continue, except those of windows that begin anew".* anew="all: 1 per calendar day in Europe/Vienna by ip"`
	if _, err := s.stderr.await(regexp.MustCompile(line)); err != nil {
		t.Fatal(err)
	}
	ask(http.StatusNoContent)
	s.end(t)
}

func TestTheBuiltInPolicyIsNotReloaded(t *testing.T) {
	s := serveWeir(t, "--policy", "contract", "--upstream", nothingBehind(t))
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if _, err := s.stderr.await(regexp.MustCompile(`SIGHUP changes nothing.*built-in contract`)); err != nil {
		t.Fatalf("%v: %s", err, s.stderr)
	}
	s.end(t)
}

// Each shell replaces the policy every second, in its own way, as long as the
// server runs.
func TestAPolicyReplacedEverySecondIsReloaded(t *testing.T) {
	const loop = `n=2; while :; do n=$((n+1))
		text="limiters:
  - name: all
    routes: [/*]
    windows: [$n per hour by ip]"
		%s
		sleep 1; done`
	for name, step := range map[string]string{
		"mv":               `echo "$text" >new; mv new policy.yaml`,
		"in place":         `echo "$text" >policy.yaml`,
		"cp":               `echo "$text" >new; cp new policy.yaml`,
		"a swapped folder": `mkdir v$n; echo "$text" >v$n/policy.yaml; ln -s v$n ..new; mv -T ..new ..data; rm -rf v$((n-1))`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			policy := filepath.Join(dir, "policy.yaml")
			replaceFile(t, policy, onePolicy(2))
			if name == "a swapped folder" { // like Kubernetes' mount of a ConfigMap
				if err := errors.Join(os.Mkdir(filepath.Join(dir, "v2"), 0o700), os.Rename(policy, filepath.Join(dir, "v2", "policy.yaml")),
					os.Symlink("v2", filepath.Join(dir, "..data")), os.Symlink("..data/policy.yaml", policy)); err != nil {
					t.Fatal(err)
				}
			}
			s := serveWeir(t, "--access-log=off", "--policy", policy, "--upstream", nothingBehind(t))
			shell := exec.Command("sh", "-ec", fmt.Sprintf(loop, step))
			shell.Dir = dir
			p, err := launch(shell)
			if err != nil {
				t.Fatal(err)
			}
			defer p.kill()
			if _, err := s.stderr.await(regexp.MustCompile(`(?s)(the policy was replaced.*){3}`)); err != nil {
				t.Fatal(err)
			}
			if output := s.stderr.String(); strings.Contains(output, "level=ERROR") {
				t.Errorf("it logs an error:\n%s", output)
			}
		})
	}
}
