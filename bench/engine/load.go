package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// connections is the number of concurrent connections, unless a case sets another.
const connections = 64

// figures are the results of a turn, by name.
type figures map[string]float64

var (
	wrkRequests = regexp.MustCompile(`(\d+) requests in ([\d.]+)(s|m)`)
	wrkOthers   = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
	wrkErrors   = regexp.MustCompile(`Socket errors: .*`)
	wrkP99      = regexp.MustCompile(`(?m)^\s+99%\s+([\d.]+)(us|ms|s)`)
)

// The outcome that wrk should get.
type outcome string

const (
	served  outcome = "2xx"
	refused outcome = "429" // except for the few that a limit admits
)

// drive has wrk send the small request to s repeatedly, with one more field unless that is empty.
func drive(ctx context.Context, s *server, scheme, field string, want outcome, length time.Duration) (figures, error) {
	args := []string{"-t1", fmt.Sprintf("-c%d", connections), fmt.Sprintf("-d%ds", max(1, int(length.Seconds()))), "--latency"}
	if field != "" {
		args = append(args, "-H", field)
	}
	before, err := cpuTime(s.pid)
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "wrk", append(args, scheme+"://"+s.address+smallPath)...).Output()
	if err != nil {
		return nil, fmt.Errorf("wrk: %w", err)
	}
	after, err := cpuTime(s.pid)
	if err != nil {
		return nil, err
	}
	m, p99 := wrkRequests.FindSubmatch(out), wrkP99.FindSubmatch(out)
	if m == nil || p99 == nil || wrkErrors.Match(out) {
		return nil, fmt.Errorf("wrk says:\n%s", out)
	}
	n, _ := strconv.ParseFloat(string(m[1]), 64)
	took, _ := strconv.ParseFloat(string(m[2]), 64)
	others := 0.0
	if m := wrkOthers.FindSubmatch(out); m != nil {
		others, _ = strconv.ParseFloat(string(m[1]), 64)
	}
	if want == served && others > 0 {
		return nil, fmt.Errorf("%.0f of %.0f answers were no 2xx, far below the limit", others, n)
	}
	if want == refused && others < 0.99*n {
		return nil, fmt.Errorf("%.0f of %.0f answers were 2xx, though the limit was spent", n-others, n)
	}
	late, _ := time.ParseDuration(string(p99[1]) + string(p99[2]))
	return figures{requestsFigure: n, cpuFigure: (after - before).Seconds() * 1e6 / n, rateFigure: n / took, p99Figure: late.Seconds() * 1e3,
		busyFigure: 100 * (after - before).Seconds() / took}, nil
}

// ask sends one request over a new connection, and returns the status of its answer.
func ask(address, path, field string) (status int, err error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := io.WriteString(c, request(path, field)); err != nil {
		return 0, err
	}
	m, err := readHead(c, make([]byte, 16<<10))
	return m.status(), err
}

// request returns a request as wrk sends it, with one more field unless that is empty.
func request(path, field string) string {
	if field != "" {
		field += "\r\n"
	}
	return "GET " + path + " HTTP/1.1\r\nHost: api.example.com\r\n" + field + "\r\n"
}

// atRate sends requests at a constant rate.
func atRate(ctx context.Context, s *server, rate float64, length time.Duration) (figures, error) {
	l, err := openLoad(s.address, protocol{conns: connections, streams: 1})
	if err != nil {
		return nil, err
	}
	defer l.close()
	before, err := cpuTime(s.pid)
	if err != nil {
		return nil, err
	}
	t, err := l.drive(ctx, rate, length, 0)
	if err != nil {
		return nil, err
	}
	after, err := cpuTime(s.pid)
	if err != nil {
		return nil, err
	}
	n := float64(len(t.took))
	return figures{cpuFigure: (after - before).Seconds() * 1e6 / n, rateFigure: n / length.Seconds(),
		p99Figure: t.p99().Seconds() * 1e3, busyFigure: 100 * (after - before).Seconds() / length.Seconds()}, nil
}

// bodyConnections is the number of concurrent bodies.
const bodyConnections = 4

// A transfer sends one body, from the file or to be discarded.
type transfer func(c *net.TCPConn, file *os.File) error

// bodies transfers bodies through s, up or down, one after another on each connection.
func bodies(ctx context.Context, s *server, file string, one transfer, length time.Duration) (figures, error) {
	before, err := cpuTime(s.pid)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	var done atomic.Int64
	var all sync.WaitGroup
	failed := make([]error, bodyConnections)
	for i := range failed {
		all.Go(func() {
			failed[i] = repeat(ctx, s.address, file, begun.Add(length), func(c *net.TCPConn, f *os.File) error {
				err := one(c, f)
				if err == nil {
					done.Add(1)
				}
				return err
			})
		})
	}
	all.Wait()
	took := time.Since(begun)
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	after, err := cpuTime(s.pid)
	if err != nil {
		return nil, err
	}
	peak, err := memory(s.pid, "VmHWM")
	if err != nil {
		return nil, err
	}
	mib := float64(done.Load()) * bodyBytes / (1 << 20)
	return figures{mibFigure: mib / took.Seconds(), cpuFigure: (after - before).Seconds() * 1e6 / mib,
		busyFigure: 100 * (after - before).Seconds() / took.Seconds(), peakFigure: peak}, nil
}

// repeat repeats a transfer on a connection until the time is over.
func repeat(ctx context.Context, address, path string, until time.Time, one transfer) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(until.Add(20 * time.Second)); err != nil {
		return err
	}
	for ctx.Err() == nil && time.Now().Before(until) {
		if err := one(c.(*net.TCPConn), file); err != nil {
			return err
		}
	}
	return nil
}

func upload(c *net.TCPConn, file *os.File) error {
	if err := sendBody(c, "POST "+uploadPath+" HTTP/1.1\r\nHost: api.example.com\r\nContent-Type: application/octet-stream\r\n", file); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	return takeAnswer(c, 3)
}

func download(c *net.TCPConn, _ *os.File) error {
	if _, err := io.WriteString(c, request(largePath, "")); err != nil {
		return fmt.Errorf("download: %w", err)
	}
	return takeAnswer(c, bodyBytes)
}

// takeAnswer reads an answer with status 200 and a body of the given length.
func takeAnswer(c *net.TCPConn, length int64) error {
	m, err := readHead(c, make([]byte, 16<<10))
	if err != nil {
		return fmt.Errorf("read an answer: %w", err)
	}
	if m.status() != 200 || m.length != length {
		return fmt.Errorf("an answer is not of 200 with %d bytes:\n%s", length, m.head)
	}
	return discard(c, length-int64(m.beyond))
}

// holdIdle opens n connections, uses each for one request, and returns the memory that the process
// then has.
func holdIdle(ctx context.Context, s *server, how protocol) (figures, error) {
	before, err := memory(s.pid, "VmRSS")
	if err != nil {
		return nil, err
	}
	l, err := openLoad(s.address, how)
	if err != nil {
		return nil, err
	}
	defer l.close()
	const rate = 2000
	if _, err := l.drive(ctx, rate, time.Duration(how.conns)*time.Second/rate, 0); err != nil {
		return nil, err
	}
	after, err := memory(s.pid, "VmRSS")
	if err != nil {
		return nil, err
	}
	return figures{restFigure: before, heldFigure: after, eachFigure: (after - before) * 1024 / float64(how.conns)}, nil
}

// dialsOf measures a turn, and how many connections the server opens to its upstream meanwhile.
func dialsOf(w *world, turn func() (figures, error)) (figures, error) {
	before, err := dials(w.small)
	if err != nil {
		return nil, err
	}
	found, err := turn()
	if err != nil {
		return nil, err
	}
	after, err := dials(w.small)
	if err != nil {
		return nil, err
	}
	const own = 1 // the connection that asked last
	found[dialsFigure] = 1e4 * float64(after-before-own) / found[requestsFigure]
	return found, nil
}

// dials returns how many connections the upstream with small answers has accepted so far.
func dials(address string) (int, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := io.WriteString(c, request(dialsPath, "")); err != nil {
		return 0, err
	}
	text, err := io.ReadAll(c)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}
