package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/bench/page"
)

// Figures are the results of one case.
type figures struct {
	scene
	report
	requests                int // to be served
	missing, again, mangled int // according to the upstream

	opened     int     // windows in which units were spent
	maxSpent   int     // the maximum of units that were spent in one of them
	afterFirst int     // refusals after the first window
	windows    float64 // on the clock
	budget     float64 // that could have been spent in them
	problem    string
}

// formula explains what weigh computes.
const formula = `Windows on the clock are 1 + T / length, where T runs from the whole second in which the first request was sent (that is when
the first window opens) to the last answer. Usable is that times (limit - threshold + 1), and used is the share of it that was served. 100 %
would be a caller that spends each window's budget at once, at the moment of the reset before it.`

// weigh computes what follows from the report: the used share of what a caller without any delay
// could have used.
func (f *figures) weigh(per time.Duration) {
	f.opened = len(f.ServedBy)
	if f.opened == 0 {
		return
	}
	f.maxSpent = slices.Max(slices.Collect(maps.Values(f.ServedBy)))
	first := slices.Min(slices.Collect(maps.Keys(f.ServedBy)))
	for reset, n := range f.RefusedBy {
		if reset > first {
			f.afterFirst += n
		}
	}
	f.windows = 1 + f.Ended.Sub(f.Began.Truncate(time.Second)).Seconds()/per.Seconds()
	f.budget = float64(f.usable()) * f.windows
}

func (f figures) used() float64 { return 100 * float64(f.Served) / f.budget }

func (f figures) took() time.Duration { return f.Ended.Sub(f.Began) }

// once reports whether each request reached the upstream exactly once, complete, and was answered.
func (f figures) once() string {
	var wrong []string
	for _, w := range []struct {
		n    int
		what string
	}{{f.missing, "never served"}, {f.again, "served more than once"}, {f.mangled, "not whole"}, {f.Failed, "not answered"}} {
		if w.n > 0 {
			wrong = append(wrong, fmt.Sprintf("%d %s", w.n, w.what))
		}
	}
	return cmp.Or(strings.Join(wrong, ", "), "all")
}

// Results are everything that was measured.
type results struct {
	plan      plan
	machine   string
	found     []figures
	overheads []overhead
}

func describeMachine() string {
	processor := find("/proc/cpuinfo", `model name\s*: (.*)`)
	if strings.Contains(find("/proc/cpuinfo", `flags\s*: (.*)`), "hypervisor") {
		processor += ", a virtual machine"
	}
	return fmt.Sprintf("%s, %d cores; Linux %s; %s; %s; load before the run %s", processor, runtime.NumCPU(),
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

// writeDocs writes the tables to dir/pacing.md, between their two comments.
func (r *results) writeDocs(dir string) error {
	return page.Fill(filepath.Join(dir, "pacing.md"), "pacer", r.String())
}
