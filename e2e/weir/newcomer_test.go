package weir

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// blocks returns the blocks to paste from the start-up text: runs of indented
// lines.
func blocks(startup string) []string {
	var found []string
	inside := false
	for _, line := range strings.Split(startup, "\n") {
		command, ok := strings.CutPrefix(line, "    ")
		switch {
		case ok && inside:
			found[len(found)-1] += command + "\n"
		case ok:
			found = append(found, command+"\n")
		}
		inside = ok
	}
	return found
}

// startup returns a server's output once it is ready.
func (s *server) startup(t *testing.T) string {
	t.Helper()
	if _, err := s.stdout.await(ready); err != nil {
		t.Fatal(err)
	}
	return s.stdout.String()
}

// paste runs a block in a shell, in a directory of its own.
func paste(t *testing.T, block string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash")
	cmd.Dir, cmd.Env = t.TempDir(), cleanEnv()
	cmd.Stdin = strings.NewReader(block)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\nof the block:\n%s", err, out, block)
	}
	return string(out)
}

// lastReply returns the last HTTP answer in a block's output.
func lastReply(t *testing.T, out string) reply {
	t.Helper()
	at := strings.LastIndex(out, "HTTP/")
	if at < 0 {
		t.Fatalf("no answer in:\n%s", out)
	}
	r, err := readReply(strings.NewReader(out[at:]))
	if err != nil {
		t.Fatalf("%v in:\n%s", err, out)
	}
	return r
}

func TestTheStartUpBlocksEachReachA429(t *testing.T) {
	s := serveWeir(t)
	found := blocks(s.startup(t))
	if len(found) != 2 {
		t.Fatalf("start-up printed %d blocks, want 2:\n%s", len(found), s.stdout)
	}
	for i, want := range []struct {
		served  string
		limit   int64
		message string
	}{{"201", 30, widgetMessage}, {"200", 60, syncMessage}} {
		out := paste(t, found[i])
		if n := strings.Count(out, want.served+" "); n != int(want.limit) {
			t.Errorf("%d times %s before the 429, want %d:\n%s", n, want.served, want.limit, out)
		}
		wantRefusal(t, lastReply(t, out), want.limit, time.Minute, want.message)
	}
	s.end(t)
}

func TestTheDemoIsAtTheStartUpsURL(t *testing.T) {
	s := serveWeir(t)
	text := s.startup(t)
	m := regexp.MustCompile(`(?m)^demo +(\S+)$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("start-up names no demo page:\n%s", text)
	}
	if page := curl(t, m[1]); page.status != http.StatusOK || !strings.Contains(page.body, "<title>Weir demo") {
		t.Errorf("GET %s: %d %s", m[1], page.status, page.body)
	}
	s.end(t)
}

func TestTheStartUpBlocksWorkWithADataDirectoryAndTLS(t *testing.T) {
	// The demo workspace is missing because another was created before the first
	// start. The directory's name needs quoting.
	data := t.TempDir() + "/it's data"
	apiToken(t, data, "acme")
	cert, key := t.TempDir()+"/cert.pem", t.TempDir()+"/key.pem"
	if err := writeCertificate(cert, key); err != nil {
		t.Fatal(err)
	}
	s := serveIn(t, data, "--tls-cert", cert, "--tls-key", key, "--trusted-proxies", "127.0.0.1", "--proxy-protocol")
	found := blocks(s.startup(t))
	if len(found) != 2 {
		t.Fatalf("start-up printed %d blocks, want 2:\n%s", len(found), s.stdout)
	}
	for _, block := range found {
		if r := lastReply(t, paste(t, block)); r.status != 429 {
			t.Errorf("the block ended with %d %s:\n%s", r.status, r.body, block)
		}
	}
	s.end(t)
}

func TestTheStartUpBlocksFollowThePolicy(t *testing.T) {
	policy := t.TempDir() + "/policy.yaml"
	source := `limiters:
  - name: leads
    routes: [POST /api/v1/widget/leads]
    windows: [5 per hour by session or ip]
    cost: 2
  - name: rest
    routes: [/*]
    windows: [100 per minute by ip]
`
	if err := os.WriteFile(policy, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveWeir(t, "--policy", policy)
	out := paste(t, blocks(s.startup(t))[0])
	if n := strings.Count(out, "201 "); n != 2 {
		t.Errorf("%d leads went through, want 2 of cost 2 in 5:\n%s", n, out)
	}
	wantRefusal(t, lastReply(t, out), 5, time.Hour, "Too many requests. Please slow down.")
	s.end(t)
}

func TestStartUpBeforeAnUpstreamNamesUnverifiedCredentials(t *testing.T) {
	s := serveWeir(t, "--policy", "contract", "--upstream", "http://127.0.0.1:9")
	text := s.startup(t)
	if strings.Contains(text, "demo") {
		t.Errorf("the start-up text names a demo page that this backend does not have:\n%s", text)
	}
	for _, want := range []string{
		"sessions   not verified",
		"API tokens not verified",
		"counted by IP address and forwarded",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the start-up text does not contain %q:\n%s", want, text)
		}
	}
	if found := blocks(text); len(found) != 0 {
		t.Errorf("start-up printed blocks for a backend that it does not know:\n%s", text)
	}
	s.end(t)
}
