package main

import (
	"fmt"

	"github.com/weirlimit/weir/bench/page"
)

// targetsTable compares the aims of the embedded store with its results.
func (r *results) targetsTable() table {
	t := table{name: "targets", title: "Targets of the embedded store", head: []string{"", "aim", "here", ""}}
	many := millions(r.Many)
	ns := func(metric, name string) []float64 { return r.of(metric, "ns", name) }
	times := func(what, metric, name, base string, limit float64) {
		if v, ok := ratio(ns(metric, name), ns(metric, base)); ok {
			t.judge(what, fmt.Sprintf("at most %.4g× %s", limit, base), fmt.Sprintf("%.2f×", v), v <= limit)
		}
	}
	times("hot key, one core", "hot 1", weirName, floorName, 1.3)
	times("refused key, one core", "refused 1", weirName, floorName, 1.3)
	times("a million keys at random, one core", "million 1", weirName, floorName, 1.3)
	for _, metric := range []string{"hot 1", "refused 1", "million 1"} {
		if name, v, ok := r.fastestPeer(metric); ok {
			if own := ns(metric, weirName); len(own) > 0 {
				times, _ := ratio(own, ns(metric, name))
				t.judge(map[string]string{"hot 1": "hot key", "refused 1": "refused key", "million 1": "a million keys at random"}[metric]+", relative to the fastest peer",
					"faster than "+name+" ("+page.Digits(v)+" ns)", fmt.Sprintf("%.2f×", times), times < 1)
			}
		}
	}
	if a, b := ns("million 1", "sethvargo/go-limiter"), ns("million 1", weirName); len(a) > 0 && len(b) > 0 {
		v, _ := ratio(a, b)
		t.judge("a million keys at random", "1.9× as fast as sethvargo/go-limiter", fmt.Sprintf("%.2f×", v), v >= 1.9)
	}
	if v, ok := ratio(ns("refused 2", weirName), ns("refused 1", weirName)); ok {
		t.judge("refused key, two cores", "under 0.65× one core", fmt.Sprintf("%.2f×", v), v < 0.65)
	}
	times("64 goroutines a core on one key, two cores", "herd 2", weirName, floorName, 1.5)
	t.atMost("resident memory, "+many+" keys, steady", r.of("memory "+many, "steady", weirName), 32, "bytes a key")
	t.atMost("resident memory, at worst while growing", r.of("memory "+many, "peak", weirName), 48, "bytes a key")
	t.atMost("full garbage collection, "+many+" keys", r.of("memory "+many, "ms", weirName), 5, "ms")
	times("two windows, hot key", "hot 1", twoName, weirName, 2)
	times("two windows, a million keys", "million 1", twoName, weirName, 2)
	for _, metric := range []string{"hot 1", "million 1"} {
		if xs := r.of(metric, "allocations", twoName); len(xs) > 0 {
			t.judge("allocations of a decision, two windows", "0", fmt.Sprintf("%.0f", page.Median(xs)), page.Median(xs) < 0.01)
			break
		}
	}
	for _, name := range []string{weirName, shmName} {
		r.judgeWorst(&t, "worst decision "+r.whileExpiring()+", "+name, "expire", name)
		r.judgeWorst(&t, "worst decision "+r.whileGrowing()+", "+name, "grow", name)
	}
	for _, metric := range []string{"hot 1", "million 1"} {
		what := map[string]string{"hot 1": "hot key", "million 1": "a million keys"}[metric]
		times("file on tmpfs, "+what, metric, shmName, weirName, 1.1)
		times("file on disk, "+what, metric, diskName, weirName, 1.1)
	}
	t.atMost("first decision after kill -9, "+many+" keys, tmpfs", r.of("reopen", "ms", shmName), 200, "ms")
	t.atMost("first decision after kill -9, "+many+" keys, disk", r.of("reopen", "ms", diskName), 200, "ms")
	return t
}

func (t *table) judge(what, aim, here string, reached bool) {
	verdict := "reached"
	if !reached {
		verdict = "**behind**"
	}
	t.rows = append(t.rows, []string{what, aim, here, verdict})
}

// atMost judges the median of figures that should not exceed a limit.
func (t *table) atMost(what string, xs []float64, limit float64, unit string) {
	if len(xs) > 0 {
		t.judge(what, fmt.Sprintf("at most %g %s", limit, unit), page.Digits(page.Median(xs)), page.Median(xs) <= limit)
	}
}

// judgeWorst judges the own time of the worst decision, and shows the total beside it, also the
// floor's.
func (r *results) judgeWorst(t *table, what, metric, name string) {
	own, worst, floors := r.of(metric+" own", "own", name), r.of(metric, "worst", name), r.of(metric, "worst", floorName)
	if len(own) > 0 && len(worst) > 0 && len(floors) > 0 {
		here := fmt.Sprintf("%s ms of its own (by the clock %s, the floor's %s)", page.Digits(page.Median(own)), page.Digits(page.Median(worst)), page.Digits(page.Median(floors)))
		t.judge(what, "under 1 ms", here, page.Median(own) < 1)
	}
}

// fastestPeer returns the fastest contestant besides the floor and Weir.
func (r *results) fastestPeer(metric string) (name string, ns float64, ok bool) {
	for _, c := range contestants() {
		if xs := r.of(metric, "ns", c.name); c.name != floorName && c.name != weirName && len(xs) > 0 {
			if v := page.Median(xs); !ok || v < ns {
				name, ns, ok = c.name, v, true
			}
		}
	}
	return name, ns, ok
}
