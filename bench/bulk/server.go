package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// A server is `weir serve` as a separate process, with the only client that uploads to it.
type server struct {
	url, token string
	cmd        *exec.Cmd
	stop       func()
}

// policyFor returns a policy with the contract's limit for uploads if paced, and high limits for
// everything else.
func policyFor(paced bool) string {
	limit := "1000000"
	if paced {
		limit = "60"
	}
	return "limiters:\n" +
		"  - name: wp-plugin\n    routes: [/v1/wp/*]\n    windows: [" + limit + " per minute by token or ip]\n" +
		"  - name: widget\n    routes: [/api/v1/widget/*]\n    windows: [1000000 per minute by ip]\n"
}

var printedURL = regexp.MustCompile(`(http://127\.0\.0\.1:\d+)`)

func start(dir string, o options) (*server, error) {
	weir := o.weir
	if weir == "" {
		weir = filepath.Join(dir, "weir")
		build := exec.Command("go", "build", "-o", weir, "./cmd/weir")
		build.Dir, build.Stderr = "..", os.Stderr
		if err := build.Run(); err != nil {
			return nil, fmt.Errorf("build weir: %w", err)
		}
	}
	data, policy := filepath.Join(dir, "data"), filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(policyFor(o.paced)), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(weir, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--policy", policy, "--data", data)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout // the address may be on either
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd, stop: func() { cmd.Process.Signal(syscall.SIGTERM); cmd.Wait() }}
	lines := bufio.NewScanner(out)
	for s.url == "" && lines.Scan() {
		if m := printedURL.FindStringSubmatch(lines.Text()); m != nil {
			s.url = m[1]
		}
	}
	if err := lines.Err(); err != nil {
		s.stop()
		return nil, fmt.Errorf("read what weir serve prints: %w", err)
	}
	go io.Copy(io.Discard, out) // so that its output does not block it
	token, err := exec.Command(weir, "token", "create", "--workspace", "demo", "--data", data).Output()
	if err != nil || s.url == "" {
		s.stop()
		return nil, fmt.Errorf("start weir serve (at %q) and make a token: %w", s.url, err)
	}
	s.token = strings.TrimSpace(string(token))
	return s, nil
}

// send sends one request and reads its answer.
func (s *server) send(method, path, credential string, body []byte) (*http.Response, []byte, error) {
	r, err := http.NewRequest(method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+credential)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer, text, err
}

// sync uploads one page. If paced, it waits for the next window when the budget is spent.
func (s *server) sync(page []document, paced bool) (waited time.Duration, err error) {
	body, err := json.Marshal(map[string]any{"items": page})
	if err != nil {
		return 0, err
	}
	answer, text, err := s.send("PUT", "/v1/wp/documents", s.token, body)
	if err != nil {
		return 0, err
	}
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("answered %d %.300s", answer.StatusCode, text)
	}
	if !paced || answer.Header.Get("X-RateLimit-Remaining") != "0" {
		return 0, nil
	}
	reset, err := strconv.ParseInt(answer.Header.Get("X-RateLimit-Reset"), 10, 64)
	if err != nil {
		return 0, err
	}
	date, err := http.ParseTime(answer.Header.Get("Date")) // the server's clock, not ours
	if err != nil {
		return 0, err
	}
	waited = max(0, time.Unix(reset, 0).Sub(date))
	time.Sleep(waited)
	return waited, nil
}

// askAll asks the questions one after another, as a visitor, and prints how long the answers took.
func (s *server) askAll(questions []string) error {
	_, text, err := s.send("POST", "/api/v1/widget/init", "", []byte(`{"agent_id":"demo"}`))
	if err != nil {
		return err
	}
	var session struct{ Token string }
	if err := json.Unmarshal(text, &session); err != nil {
		return err
	}
	var took []time.Duration
	fitting := 0
	for _, q := range questions {
		body, err := json.Marshal(map[string]string{"text": q})
		if err != nil {
			return err
		}
		began := time.Now()
		answer, text, err := s.send("POST", "/api/v1/widget/messages", session.Token, body)
		if err != nil || answer.StatusCode != http.StatusCreated {
			return fmt.Errorf("ask %.40q: %v %.300s", q, err, text)
		}
		took = append(took, time.Since(began))
		if !bytes.Contains(text, []byte(`"sources":[]`)) {
			fitting++
		}
	}
	fmt.Printf("%d questions, %d answered from a page; POST messages %s\n", len(questions), fitting, quantiles(took))
	return nil
}

// searchAlone sends the same questions to the database directly.
func searchAlone(path string, questions []string) error {
	db, err := sqlite.Open(context.Background(), path, sqlite.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	var took []time.Duration
	for _, q := range questions {
		began := time.Now()
		if _, err := db.Search(context.Background(), "demo", q, 3); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	fmt.Printf("the search alone %s\n", quantiles(took))
	return nil
}

func quantiles(took []time.Duration) string {
	slices.Sort(took)
	at := func(q float64) float64 {
		return float64(took[min(len(took)-1, int(q*float64(len(took))))].Microseconds()) / 1000
	}
	return fmt.Sprintf("p50 %.2f ms, p99 %.2f ms, max %.2f ms", at(.5), at(.99), at(1))
}

var highWater = regexp.MustCompile(`VmHWM:\s*(\d+) kB`)

// memory prints the server's peak memory so far.
func (s *server) memory(when string) error {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return err
	}
	m := highWater.FindSubmatch(status)
	if m == nil {
		return fmt.Errorf("no VmHWM in %s", status)
	}
	kib, err := strconv.ParseInt(string(m[1]), 10, 64)
	fmt.Printf("peak memory of the server %s: %s\n", when, mebibytes(kib<<10))
	return err
}
