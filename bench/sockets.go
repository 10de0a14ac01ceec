package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// serve runs one contestant as a separate process until its standard input ends.
func serve(name string) error {
	h, err := handlerFor(name)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", l.Addr())
	go http.Serve(l, h)
	bufio.NewReader(os.Stdin).ReadByte() // until the parent closes the pipe
	return nil
}

// A server is a running contestant.
type server struct {
	name string
	url  string
	cmd  *exec.Cmd
	stop func()

	refuses bool // nearly every request, as intended
}

// start runs a command on one core and waits for the line with its address.
func start(name string, cmd *exec.Cmd, address *regexp.Regexp) (*server, error) {
	cmd.Env = append(cmd.Environ(), "GOMAXPROCS=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout // the address may be on either
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := func() { stdin.Close(); cmd.Process.Signal(syscall.SIGTERM); cmd.Wait() }
	lines := bufio.NewScanner(out)
	var seen []string
	for lines.Scan() {
		seen = append(seen, lines.Text())
		if m := address.FindStringSubmatch(lines.Text()); m != nil {
			go func() { // so that its output does not block it
				for lines.Scan() {
				}
			}()
			return &server{name: name, url: m[1], cmd: cmd, stop: stop}, nil
		}
	}
	stop()
	return nil, errors.Join(fmt.Errorf("start %s: no address in its output:\n%s", name, strings.Join(seen, "\n")), lines.Err())
}

var printedURL = regexp.MustCompile(`(http://127\.0\.0\.1:\d+)`)

func startSelf(name string, env ...string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "serve", name)
	cmd.Env = append(os.Environ(), env...)
	return start(name, cmd, printedURL)
}

// overSockets measures the CPU time of each server process per request under wrk.
func overSockets(rounds int, length time.Duration, weir string) error {
	if _, err := exec.LookPath("wrk"); err != nil {
		return fmt.Errorf("measure over sockets: %w: install Debian's package wrk", err)
	}
	var middleware []*server
	for _, c := range contestants {
		s, err := startSelf(c.name)
		if err != nil {
			return err
		}
		defer s.stop()
		middleware = append(middleware, s)
	}
	fmt.Printf("\nnet/http middleware over sockets, a limiter by address, served (server on one core, wrk, 64 connections)\n\n")
	if err := compare(middleware, rounds, length); err != nil {
		return err
	}
	return gateways(rounds, length, weir)
}

// gateways compares `weir serve --upstream`, access log on, with a bare ReverseProxy.
func gateways(rounds int, length time.Duration, weir string) error {
	dir, err := os.MkdirTemp("", "weir-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if weir == "" {
		weir = filepath.Join(dir, "weir")
		build := exec.Command("go", "build", "-o", weir, "./cmd/weir")
		build.Dir, build.Stderr = "..", os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build weir: %w", err)
		}
	}
	upstream, err := startSelf("upstream")
	if err != nil {
		return err
	}
	defer upstream.stop()
	var servers []*server
	for _, name := range []string{bareProxy, pooledProxy} {
		s, err := startSelf(name, "BENCH_UPSTREAM="+upstream.url)
		if err != nil {
			return err
		}
		defer s.stop()
		servers = append(servers, s)
	}
	policy := filepath.Join(dir, "policy.yaml")
	text := fmt.Sprintf("limiters:\n  - name: all\n    routes: [/api/*]\n    windows: [%d per minute by ip]\n", plenty)
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(weir, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", upstream.url, "--policy", policy, "--data", filepath.Join(dir, "data"))
	edge, err := start("weir serve --upstream", cmd, printedURL)
	if err != nil {
		return err
	}
	defer edge.stop()
	fmt.Printf("\ngateway before a trivial upstream, access log on (gateway on one core, wrk, 64 connections)\n\n")
	return compare(append(servers, edge), rounds, length)
}

// compare prints the CPU time per request of each server; the first one is the floor.
func compare(servers []*server, rounds int, length time.Duration) error {
	cpu, rate := make([][]float64, len(servers)), make([][]float64, len(servers))
	for _, s := range servers {
		if _, _, err := load(s, 500*time.Millisecond); err != nil { // warm up
			return err
		}
	}
	for range rounds {
		for i, s := range servers {
			c, r, err := load(s, length)
			if err != nil {
				return err
			}
			cpu[i], rate[i] = append(cpu[i], c), append(rate[i], r)
		}
	}
	// the ratio is the median over the rounds, because rounds differ more than contestants
	for i, s := range servers {
		ratios := make([]float64, rounds)
		for r := range ratios {
			ratios[r] = cpu[i][r] / cpu[0][r]
		}
		fmt.Printf("%-22s %8.2f µs CPU a request  %5.2f×  %9.0f requests/s\n", s.name, median(cpu[i]), median(ratios), median(rate[i]))
	}
	return nil
}

var wrkRequests = regexp.MustCompile(`(\d+) requests in ([\d.]+)s`)

var wrkRefused = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)

// load drives s and returns the microseconds of CPU time that its process spent on each request.
func load(s *server, length time.Duration) (cpuMicros, perSecond float64, err error) {
	before, err := cpuTime(s.cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	seconds := max(1, int(length.Seconds()))
	out, err := exec.Command("wrk", "-t1", "-c64", fmt.Sprintf("-d%ds", seconds), s.url+path).Output()
	if err != nil {
		return 0, 0, fmt.Errorf("wrk against %s: %w", s.name, err)
	}
	after, err := cpuTime(s.cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	m := wrkRequests.FindSubmatch(out)
	if m == nil {
		return 0, 0, fmt.Errorf("wrk against %s:\n%s", s.name, out)
	}
	if bad := wrkRefused.FindSubmatch(out); bad != nil && !s.refuses {
		fmt.Printf("(%s answered %s requests with an error or a refusal, far below its limit)\n", s.name, bad[1])
	}
	n, _ := strconv.ParseFloat(string(m[1]), 64)
	took, _ := strconv.ParseFloat(string(m[2]), 64)
	return (after - before).Seconds() * 1e6 / n, n / took, nil
}

// cpuTime reads the user and system time of a process from /proc.
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / 100, nil
}

func cpuName() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	if m := regexp.MustCompile(`model name\s*: (.*)`).FindSubmatch(info); m != nil {
		return string(m[1])
	}
	return "unknown processor"
}
