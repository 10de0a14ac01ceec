// Command simulate measures `weir simulate`: how many lines it reads and decides a second on one
// core, and its peak memory, for logs of a million and of ten million lines and for many callers.
//
//	go run ./simulate                everything: ten million lines temporarily need 2 GB of disk
//	go run ./simulate -quick         at most a million lines
//	go run ./simulate -docs ../docs  the same, and rewrites docs/simulate.md
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weirlimit/weir/bench/page"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// A measurement is one command over one log.
type measurement struct {
	what  string
	log   log
	args  []string
	gzip  bool
	times []time.Duration // processor time on one core
	walls []time.Duration
	peak  int64 // bytes
	found answer
}

// An answer is the part of the command's JSON that is checked.
type answer struct {
	Log struct {
		Lines     int64 `json:"lines"`
		Malformed int64 `json:"malformed"`
	} `json:"log"`
	Policy struct {
		Refused int64 `json:"refused"`
		Callers struct {
			N int64 `json:"n"`
		} `json:"callers"`
	} `json:"policy"`
}

func run() error {
	quick := flag.Bool("quick", false, "a million lines at most")
	rounds := flag.Int("rounds", 3, "number of measurements of each case; the best counts, because other processes use the machine too")
	temp := flag.String("dir", "", "the directory for the generated logs, 2.5 GB (default the system's temporary directory)")
	docs := flag.String("docs", "", "the directory whose simulate.md gets the table")
	weir := flag.String("weir", "", "the weir binary to measure; empty builds it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp(*temp, "weir-bench-simulate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if *weir == "" {
		*weir = filepath.Join(dir, "weir")
		build := exec.CommandContext(ctx, "go", "build", "-o", *weir, "./cmd/weir")
		build.Dir, build.Stderr = "..", os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build weir: %w", err)
		}
	}
	machine := describeMachine()
	all := measurements(*quick)
	for i := range all {
		if err := all[i].measure(ctx, dir, *weir, *rounds); err != nil {
			return fmt.Errorf("%s: %w", all[i].what, err)
		}
	}
	text := table(machine, *rounds, all)
	fmt.Print(text)
	if *docs != "" {
		return page.Fill(filepath.Join(*docs, "simulate.md"), "simulate", text)
	}
	return nil
}

// stricter halves the contract's limits for the requests in the logs.
const stricter = "limiters:\n  - name: widget-session\n    routes: [/api/v1/widget/*]\n    windows: [150 per minute by session or ip]\n"

func measurements(quick bool) []measurement {
	const million = 1_000_000
	one := log{lines: million, callers: million / 10}
	all := []measurement{
		{what: "combined", log: one},
		{what: "the same, gzip", log: one, gzip: true},
		{what: "the same, --against", log: one, args: []string{"--against", "stricter.yaml"}},
		{what: "the same, --paced", log: one, args: []string{"--paced"}},
		{what: "every line another caller", log: log{lines: million, callers: million}},
	}
	if quick {
		return all
	}
	return append(all,
		measurement{what: "ten times as long", log: log{lines: 10 * million, callers: million / 10}},
		measurement{what: "ten times the callers, too", log: log{lines: 10 * million, callers: million}},
		measurement{what: "every line another caller", log: log{lines: 10 * million, callers: 10 * million}},
	)
}

func (m *measurement) measure(ctx context.Context, dir, weir string, rounds int) error {
	path := filepath.Join(dir, m.log.name())
	if _, err := os.Stat(path); err != nil {
		if err := m.log.write(path); err != nil {
			return err
		}
	}
	if m.gzip {
		squeeze := exec.CommandContext(ctx, "gzip", "-kf1", path)
		squeeze.Stderr = os.Stderr
		if err := squeeze.Run(); err != nil {
			return fmt.Errorf("gzip %s: %w", path, err)
		}
		path += ".gz"
	}
	if err := os.WriteFile(filepath.Join(dir, "stricter.yaml"), []byte(stricter), 0o600); err != nil {
		return err
	}
	for range rounds {
		if err := m.once(ctx, dir, weir, path); err != nil {
			return err
		}
	}
	if m.log.lines > 1_000_000 {
		return os.Remove(path) // only one such log at a time
	}
	return nil
}

// once runs the command on one core, and reads its time and memory from the kernel.
func (m *measurement) once(ctx context.Context, dir, weir, path string) error {
	args := append([]string{"-c", "0", weir, "simulate", path, "--json"}, m.args...)
	cmd := exec.CommandContext(ctx, "taskset", args...)
	cmd.Env, cmd.Dir, cmd.Stderr = append(os.Environ(), "GOMAXPROCS=1"), dir, os.Stderr
	var out bytes.Buffer
	cmd.Stdout = &out
	begun := time.Now()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", cmd, err)
	}
	m.walls = append(m.walls, time.Since(begun))
	m.times = append(m.times, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		m.peak = max(m.peak, usage.Maxrss<<10)
	}
	if err := json.Unmarshal(out.Bytes(), &m.found); err != nil {
		return fmt.Errorf("read what %s prints: %w", cmd, err)
	}
	if m.found.Log.Lines != m.log.lines || m.found.Log.Malformed != 0 || m.found.Policy.Refused == 0 {
		return fmt.Errorf("%s: %+v is not what is in the log", cmd, m.found)
	}
	return nil
}

func best(all []time.Duration) time.Duration { return slices.Min(all) }

func table(machine string, rounds int, all []measurement) string {
	var rows [][]string
	for _, m := range all {
		took := best(m.times)
		rows = append(rows, []string{
			m.what, fmt.Sprintf("%d M", m.log.lines/1_000_000), fmt.Sprint(m.found.Policy.Callers.N),
			fmt.Sprintf("%.2f M/s", float64(m.log.lines)/1e6/took.Seconds()), fmt.Sprintf("%.1f s", took.Seconds()),
			fmt.Sprintf("%.1f s", best(m.walls).Seconds()), fmt.Sprintf("%d MiB", m.peak>>20),
		})
	}
	return page.Table([]string{"log", "lines", "callers", "lines a second", "processor", "wall", "peak memory"}, rows) +
		fmt.Sprintf("\nOne core (GOMAXPROCS=1, taskset), the best of %d, since others use the machine; lines a second of the processor's time; memory as the kernel "+
			"counts what is resident at most. %s.\n", rounds, machine)
}

func describeMachine() string {
	processor := find("/proc/cpuinfo", `model name\s*: (.*)`)
	if strings.Contains(find("/proc/cpuinfo", `flags\s*: (.*)`), "hypervisor") {
		processor += ", a virtual machine"
	}
	return fmt.Sprintf("%s, %d cores, shared; Linux %s; %s; %s; load before the run %s", processor, runtime.NumCPU(),
		find("/proc/version", `Linux version (\S+)`), runtime.Version(), time.Now().Format(time.DateOnly), find("/proc/loadavg", `^(\S+)`))
}

// find returns the match of a pattern's group in a file, or "".
func find(path, pattern string) string {
	b, _ := os.ReadFile(path)
	if m := regexp.MustCompile("(?m)" + pattern).FindSubmatch(b); m != nil {
		return string(m[1])
	}
	return ""
}
