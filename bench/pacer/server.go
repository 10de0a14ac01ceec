package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// buildWeir builds this repository's server under dir, and returns its path.
func buildWeir(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "weir")
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/weir")
	build.Dir, build.Stderr = "..", os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build weir: %w", err)
	}
	return path, nil
}

// A server is `weir serve` as a separate process, in front of our upstream, which records the
// requests that reach it.
type server struct {
	url, token string
	upstream   *upstream
	cmd        *exec.Cmd
}

// policyFor returns the contract's limiter of /v1/wp/*, with another limit and a shorter window.
func policyFor(limit int64, per time.Duration) string {
	return fmt.Sprintf("limiters:\n  - name: wp-plugin\n    routes: [/v1/wp/*]\n    windows: [%d per %d seconds by token or ip]\n", limit, int(per.Seconds()))
}

var printedURL = regexp.MustCompile(`(http://127\.0\.0\.1:\d+)`)

// startServer starts the binary weir with a data directory under dir, and creates the token that
// its callers share.
func startServer(weir, dir string, limit int64, per time.Duration) (*server, error) {
	data, policy := filepath.Join(dir, "data"), filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(policyFor(limit, per)), 0o600); err != nil {
		return nil, err
	}
	token, err := exec.Command(weir, "token", "create", "--workspace", "demo", "--data", data).Output()
	if err != nil {
		return nil, fmt.Errorf("make a token: %w", err)
	}
	s := &server{token: strings.TrimSpace(string(token))}
	if s.upstream, err = startUpstream(); err != nil {
		return nil, err
	}
	s.cmd = exec.Command(weir, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--policy", policy, "--data", data, "--tokens", "--upstream", s.upstream.url, "--access-log=off")
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.upstream.stop()
		return nil, err
	}
	s.cmd.Stderr = s.cmd.Stdout // the address may be on either
	if err := s.cmd.Start(); err != nil {
		s.upstream.stop()
		return nil, fmt.Errorf("start %s: %w", weir, err)
	}
	printed, lines := "", bufio.NewScanner(out)
	for s.url == "" && lines.Scan() {
		printed += lines.Text() + "\n"
		if m := printedURL.FindString(lines.Text()); m != "" && m != s.upstream.url {
			s.url = m
		}
	}
	if s.url == "" {
		s.stop()
		return nil, errors.Join(fmt.Errorf("start weir serve: it printed %q instead of an address", printed), lines.Err())
	}
	go io.Copy(io.Discard, out) // so that its output does not block it; ends with the process
	return s, nil
}

// stop stops the server, with a kill after ten seconds, and then the upstream.
func (s *server) stop() {
	s.cmd.Process.Signal(syscall.SIGTERM)
	force := time.AfterFunc(10*time.Second, func() { s.cmd.Process.Kill() })
	s.cmd.Wait()
	force.Stop()
	s.upstream.stop()
}
