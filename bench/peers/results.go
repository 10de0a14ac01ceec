package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/bench/page"
)

// Results are all samples that were measured.
type results struct {
	Machine machine
	Many    int // keys of the large tables
	// Samples are in the order of the rounds: by metric, figure and contestant.
	Samples map[string]map[string]map[string][]float64
	// Problems are failures of contestants.
	Problems []string `json:",omitempty"`
}

func newResults() *results { return &results{Samples: map[string]map[string]map[string][]float64{}} }

// take adds the figures of one measurement, or records its failure.
func (r *results) take(metric, contestant string, figures map[string]float64, err error) {
	if err != nil {
		problem := fmt.Sprintf("%s: %v", metric, err)
		fmt.Fprintln(os.Stderr, "problem:", problem)
		if !slices.Contains(r.Problems, problem) {
			r.Problems = append(r.Problems, problem)
		}
		return
	}
	if r.Samples[metric] == nil {
		r.Samples[metric] = map[string]map[string][]float64{}
	}
	for name, v := range figures {
		if r.Samples[metric][name] == nil {
			r.Samples[metric][name] = map[string][]float64{}
		}
		r.Samples[metric][name][contestant] = append(r.Samples[metric][name][contestant], v)
	}
}

func (r *results) of(metric, figure, contestant string) []float64 {
	return r.Samples[metric][figure][contestant]
}

// ratio returns the median of a divided by b, in the same turn each: the machine varies more from
// one moment to the next than the contestants do.
func ratio(a, b []float64) (float64, bool) {
	if len(a) == 0 || len(b) == 0 {
		return 0, false
	}
	if len(a) != len(b) {
		return page.Median(a) / page.Median(b), true
	}
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return page.Median(ratios), true
}

// readResults reads the figures of -save.
func readResults(path string) (*results, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read figures: %w", err)
	}
	r := newResults()
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("read figures of %s: %w", path, err)
	}
	return r, nil
}

// addTo writes the results to a file, and keeps metrics in it that r does not have.
func (r *results) addTo(path string) error {
	all, err := readResults(path)
	if errors.Is(err, fs.ErrNotExist) {
		all = newResults()
	} else if err != nil {
		return err
	}
	all.Machine, all.Many = r.Machine, r.Many
	maps.Copy(all.Samples, r.Samples)
	all.Problems = r.Problems
	b, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}

// A machine is what the figures were measured on.
type machine struct {
	Go, Processor, Kernel, Disk string
	Cores                       int
	Load                        string // of the last minute, before the run
	Date                        string
}

func describeMachine(disk string) machine {
	m := machine{
		Go: runtime.Version(), Processor: find("/proc/cpuinfo", `model name\s*: (.*)`), Cores: runtime.NumCPU(),
		Kernel: find("/proc/version", `Linux version (\S+)`), Load: find("/proc/loadavg", `^(\S+)`),
		Disk: filesystem(disk), Date: time.Now().Format(time.DateOnly),
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
	return fmt.Sprintf("%s, %d cores; Linux %s; %s; disk: %s; %s; load before the run %s",
		m.Processor, m.Cores, m.Kernel, m.Go, m.Disk, m.Date, m.Load)
}
