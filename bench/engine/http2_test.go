package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const h2loadText = "Application protocol: h2\n\nfinished in 1.50s, 2000.00 req/s, 94.66KB/s\n" +
	"requests: 3000 total, 3160 started, 3000 done, 3000 succeeded, 0 failed, 0 errored, 0 timeout\n" +
	"status codes: 3000 2xx, 0 3xx, 0 4xx, 0 5xx\n"

func TestWhatH2loadReports(t *testing.T) {
	refusals := strings.NewReplacer("3000 succeeded, 0 failed", "1 succeeded, 2999 failed", "3000 2xx, 0 3xx, 0 4xx", "1 2xx, 0 3xx, 2999 4xx").Replace(h2loadText)
	for _, c := range []struct {
		what, text string
		want       outcome
		good       bool
	}{
		{"served", h2loadText, served, true},
		{"refused", refusals, refused, true},
		{"served, but refused was wanted", h2loadText, refused, false},
		{"refused, but served was wanted", refusals, served, false},
		{"errors", strings.Replace(h2loadText, "0 errored", "1 errored", 1), served, false},
		{"HTTP/1.1", strings.Replace(h2loadText, "protocol: h2", "protocol: http/1.1", 1), served, false},
		{"nothing", "", served, false},
	} {
		n, took, err := readH2load(c.text, c.want)
		if c.good != (err == nil) || c.good && (n != 3000 || took != 1500*time.Millisecond) {
			t.Errorf("%s: %v requests in %v, %v", c.what, n, took, err)
		}
	}
}

func TestTheP99OfALog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	lines := strings.Repeat("1700000000000000\t200\t100\n", 989) + strings.Repeat("1700000000000000\t429\t7000\n", 11)
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	if p99, err := p99OfLog(path); err != nil || p99 != 7*time.Millisecond {
		t.Errorf("%v, %v", p99, err)
	}
	for _, bad := range []string{"", "1700000000000000\t200\n", "1\t200\tfast\n"} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if p99, err := p99OfLog(path); err == nil {
			t.Errorf("%q: %v", bad, p99)
		}
	}
}
