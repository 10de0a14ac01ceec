package main

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Results are all samples that were measured.
type results struct {
	machine machine
	callers []int
	keys    int
	length  time.Duration
	// samples are in the order of the rounds: by case, figure and contestant.
	samples map[string]map[string]map[string][]float64
	// Pools are the fastest sizes of the pools of connections, by contestant and callers.
	Pools    map[string]int
	problems map[string]string // failures, by contestant
	tripRows [][]string
}

func newResults(m machine, p plan) *results {
	return &results{
		machine: m, callers: p.callers, keys: p.keys, length: p.length,
		samples: map[string]map[string]map[string][]float64{}, Pools: map[string]int{}, problems: map[string]string{},
	}
}

// take adds the figures of one turn, or records its failure.
func (r *results) take(name string, c contestant, figures map[string]float64, err error) {
	if err != nil {
		r.problem(c, fmt.Errorf("%s: %w", name, err))
		return
	}
	if r.samples[name] == nil {
		r.samples[name] = map[string]map[string][]float64{}
	}
	for figure, v := range figures {
		if r.samples[name][figure] == nil {
			r.samples[name][figure] = map[string][]float64{}
		}
		r.samples[name][figure][c.name] = append(r.samples[name][figure][c.name], v)
	}
}

func (r *results) problem(c contestant, err error) {
	if !r.failed(c) {
		fmt.Fprintf(os.Stderr, "problem: %s: %v\n", c.name, err)
		r.problems[c.name] = err.Error()
	}
}

func (r *results) failed(c contestant) bool { _, ok := r.problems[c.name]; return ok }

func (r *results) of(name, figure, contestant string) []float64 {
	return r.samples[name][figure][contestant]
}

// ratio returns the median of a divided by b, in the same round each: the machine varies more from
// one moment to the next than the contestants do.
func ratio(a, b []float64) (float64, bool) {
	if len(a) == 0 || len(b) == 0 {
		return 0, false
	}
	if len(a) != len(b) {
		return median(a) / median(b), true
	}
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return median(ratios), true
}

func median(xs []float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	return s[len(s)/2]
}

// A machine is what the figures were measured on.
type machine struct {
	Go, Processor, Kernel string
	Cores                 int
	Load                  string // of the last minute, before the run
	Date                  string
	Server                string // name and version
	Pinned                string // the assignment of cores
}

func describeMachine() machine {
	m := machine{
		Go: runtime.Version(), Processor: find("/proc/cpuinfo", `model name\s*: (.*)`), Cores: runtime.NumCPU(),
		Kernel: find("/proc/version", `Linux version (\S+)`), Load: find("/proc/loadavg", `^(\S+)`),
		Date: time.Now().Format(time.DateOnly),
	}
	if strings.Contains(find("/proc/cpuinfo", `flags\s*: (.*)`), "hypervisor") {
		m.Processor += ", a virtual machine"
	}
	return m
}

// find returns the match of a pattern's group in a file, or "".
func find(path, pattern string) string {
	b, _ := os.ReadFile(path)
	if m := regexp.MustCompile("(?m)" + pattern).FindSubmatch(b); m != nil {
		return string(m[1])
	}
	return ""
}

func (m machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s; %s; Linux %s; %s; %s; load before the run %s",
		m.Processor, m.Cores, m.Pinned, m.Server, m.Kernel, m.Go, m.Date, m.Load)
}
