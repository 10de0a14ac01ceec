package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/weirlimit/weir/bench/page"
)

// The names of figures.
const (
	cpuFigure      = "cpu"      // microseconds a request, or a MiB of a body
	requestsFigure = "requests" // of a turn
	dialsFigure    = "dials"    // connections to the upstream for 10,000 requests
	keptFigure     = "kept"     // requests a second with p99 below keptP99
	rateFigure     = "rate"     // requests a second
	p99Figure      = "p99"      // milliseconds
	busyFigure     = "busy"     // percent of its core
	mibFigure      = "mib"      // MiB of bodies a second
	peakFigure     = "peak"     // MiB resident at most
	restFigure     = "rest"     // MiB resident before the first connection
	heldFigure     = "held"     // MiB resident with all connections open
	eachFigure     = "each"     // KiB of that for each
)

// Results are all samples that were measured.
type results struct {
	Machine string
	Rounds  int
	Seconds float64 // of a turn
	Rate    float64 // of the case steady
	Idle    int     // connections of the case idle
	// Samples are in the order of the rounds: by case, figure and contestant.
	Samples map[string]map[string]map[string][]float64
	// Problems are failures of contestants, by case and contestant.
	Problems map[string]string `json:",omitempty"`
}

func newResults(machine string, p plan) *results {
	return &results{Machine: machine, Rounds: p.rounds, Seconds: p.length.Seconds(), Rate: p.rate, Idle: p.idle,
		Samples: map[string]map[string]map[string][]float64{}, Problems: map[string]string{}}
}

// take adds the figures of one turn, or records its failure.
func (r *results) take(name, contestant string, found figures, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "problem: %s: %s: %v\n", name, contestant, err)
		first, _, _ := strings.Cut(err.Error(), "\n")
		r.Problems[name+": "+contestant] = first
		return
	}
	if r.Samples[name] == nil {
		r.Samples[name] = map[string]map[string][]float64{}
	}
	for figure, v := range found {
		if r.Samples[name][figure] == nil {
			r.Samples[name][figure] = map[string][]float64{}
		}
		r.Samples[name][figure][contestant] = append(r.Samples[name][figure][contestant], v)
	}
}

func (r *results) failed(name, contestant string) bool {
	_, ok := r.Problems[name+": "+contestant]
	return ok
}

// of returns a contestant's samples, or none if it failed in any round.
func (r *results) of(name, figure, contestant string) []float64 {
	if r.failed(name, contestant) {
		return nil
	}
	return r.Samples[name][figure][contestant]
}

// ratio returns the median of a divided by b, in the same round each: the machine varies more from
// one moment to the next than the contestants do.
func ratio(a, b []float64) (float64, bool) {
	if len(a) == 0 || len(a) != len(b) {
		return 0, false
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
	r := newResults("", plan{})
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("read figures of %s: %w", path, err)
	}
	return r, nil
}

// writeTo writes the results to a file. The file holds one run: ratios across runs mean nothing.
func (r *results) writeTo(path string) error {
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
