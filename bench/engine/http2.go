package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The connections of the cases with HTTP/2, and the streams of each at a time.
const (
	http2Connections = 16
	http2Streams     = 10
)

// http2Patience is for how long h2load may take to begin and to end. On a machine that is not idle,
// h2load 1.52 now and then does not end.
const http2Patience = 10 * time.Second

var (
	h2loadRequests = regexp.MustCompile(`requests: (\d+) total, \d+ started, (\d+) done, \d+ succeeded, \d+ failed, (\d+) errored, (\d+) timeout`)
	h2loadStatuses = regexp.MustCompile(`status codes: (\d+) 2xx, \d+ 3xx, (\d+) 4xx, (\d+) 5xx`)
	h2loadTook     = regexp.MustCompile(`finished in ([\d.]+)(ms|s)`)
)

// driveHTTP2 has h2load send the small request to s repeatedly, over TLS, with one more field
// unless that is empty.
func driveHTTP2(ctx context.Context, w *world, s *server, field string, want outcome, length time.Duration) (figures, error) {
	log := filepath.Join(w.dir, "h2load.log")
	defer os.Remove(log)
	args := []string{fmt.Sprintf("-c%d", http2Connections), fmt.Sprintf("-m%d", http2Streams), "--log-file=" + log}
	if field != "" {
		args = append(args, "-H", field)
	}
	found, err := h2load(ctx, s, smallPath, want, length, args...)
	if err != nil {
		return nil, err
	}
	late, err := p99OfLog(log)
	if err != nil {
		return nil, err
	}
	found[p99Figure] = late.Seconds() * 1e3
	return found, nil
}

// http2Bodies has h2load transfer bodies of bodyBytes through s, one after another on each
// connection. args say what it sends.
func http2Bodies(ctx context.Context, s *server, path string, length time.Duration, args ...string) (figures, error) {
	found, err := h2load(ctx, s, path, served, length, append(args, fmt.Sprintf("-c%d", bodyConnections), "-m1")...)
	if err != nil {
		return nil, err
	}
	peak, err := memory(s.pid, "VmHWM")
	if err != nil {
		return nil, err
	}
	const mib = bodyBytes / (1 << 20)
	return figures{mibFigure: found[rateFigure] * mib, cpuFigure: found[cpuFigure] / mib, busyFigure: found[busyFigure], peakFigure: peak}, nil
}

// h2load runs h2load for some time, and returns its figures without p99.
func h2load(ctx context.Context, s *server, path string, want outcome, length time.Duration, args ...string) (figures, error) {
	args = append(args, "-t1", fmt.Sprintf("-D%d", max(1, int(length.Seconds()))), "-H", ":authority: api.example.com", "https://"+s.address+path)
	before, err := cpuTime(s.pid)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, length+http2Patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "h2load", args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("load by HTTP/2: %w: install Debian's package nghttp2-client", err)
	}
	if err != nil {
		return nil, fmt.Errorf("h2load: %w:\n%s", err, out)
	}
	after, err := cpuTime(s.pid)
	if err != nil {
		return nil, err
	}
	n, took, err := readH2load(string(out), want)
	if err != nil {
		return nil, err
	}
	return figures{requestsFigure: n, cpuFigure: (after - before).Seconds() * 1e6 / n, rateFigure: n / took.Seconds(),
		busyFigure: 100 * (after - before).Seconds() / took.Seconds()}, nil
}

// readH2load reads how many requests h2load has sent, and for how long. Their answers must be those
// that were wanted.
func readH2load(out string, want outcome) (n float64, took time.Duration, err error) {
	requests, statuses, finished := h2loadRequests.FindStringSubmatch(out), h2loadStatuses.FindStringSubmatch(out), h2loadTook.FindStringSubmatch(out)
	if requests == nil || statuses == nil || finished == nil || !strings.Contains(out, "Application protocol: h2\n") {
		return 0, 0, fmt.Errorf("h2load says:\n%s", out)
	}
	number := func(s string) float64 {
		f, _ := strconv.ParseFloat(s, 64) // the expressions allow digits alone
		return f
	}
	n = number(requests[2])
	if errored := number(requests[3]) + number(requests[4]); errored > 0 || n == 0 {
		return 0, 0, fmt.Errorf("%.0f of %.0f requests were not answered", errored, n)
	}
	expected := number(statuses[1])
	if want == refused {
		expected = number(statuses[2])
	}
	if expected < 0.99*n || want == served && expected < n {
		return 0, 0, fmt.Errorf("%.0f of %.0f answers were %s", expected, n, want)
	}
	took, err = time.ParseDuration(finished[1] + finished[2])
	return n, took, err
}

// p99OfLog returns the 99th percentile of the requests in h2load's log: for each, when it began,
// its status, and how many microseconds it took.
func p99OfLog(path string) (time.Duration, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	var took []int
	for lines := bufio.NewScanner(file); lines.Scan(); {
		columns := strings.Fields(lines.Text())
		if len(columns) < 3 {
			return 0, fmt.Errorf("a line of h2load's log is %q: three columns are expected", lines.Text())
		}
		us, err := strconv.Atoi(columns[2])
		if err != nil {
			return 0, fmt.Errorf("a line of h2load's log is %q: %w", lines.Text(), err)
		}
		took = append(took, us)
	}
	if len(took) == 0 {
		return 0, errors.New("h2load's log is empty")
	}
	slices.Sort(took)
	return time.Duration(took[len(took)*99/100]) * time.Microsecond, nil
}
