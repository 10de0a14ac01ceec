package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/pacer"
)

// A scene is one case: its callers, in processes and calls at a time, and its aims.
type scene struct {
	name       string
	who        string
	language   language
	processes  int // or tabs of one browser
	goroutines int // of each process: calls at a time
	limit      int64
	shared     bool          // one view for all processes; tabs of a browser always share one
	shift      time.Duration // how far the callers' clocks are ahead
	everything bool          // threshold 0
	beside     bool          // whether it is in the table of the others

	// The aims for the pacer: the share of requests that may be refused, or 0 for none, if notFirst
	// without those of the first window; and the minimum percentage of the usable budget, or 0 for
	// no aim.
	mayRefuse float64
	notFirst  bool
	mustUse   float64
}

// scenes returns the cases in order. The others send as many requests as the first, from as many
// goroutines.
func scenes() []scene {
	one := scene{who: pacerName, processes: 1, goroutines: 64, limit: 60, mustUse: 97}
	with := func(change func(*scene)) scene {
		s := one
		change(&s)
		return s
	}
	all := []scene{
		with(func(s *scene) { s.name, s.beside = "64 goroutines", true }),
		with(func(s *scene) { s.name, s.everything = "64 goroutines, threshold 0", true }),
		with(func(s *scene) { s.name, s.shift = "64 goroutines, clock 10 minutes fast", 10*time.Minute }),
		with(func(s *scene) { s.name, s.shift = "64 goroutines, clock 10 minutes slow", -10*time.Minute }),
		with(func(s *scene) {
			s.name, s.processes, s.goroutines, s.shared = "8 processes of 8, one view in a file", 8, 8, true
			s.notFirst, s.mustUse = true, 95
		}),
		with(func(s *scene) {
			s.name, s.processes, s.goroutines, s.shared, s.limit = "8 processes of 8, one view in a file, limit 600", 8, 8, true, 600
			s.notFirst, s.mustUse = true, 95
		}),
		with(func(s *scene) {
			s.name, s.processes, s.goroutines, s.limit = "8 processes of 8, nothing shared, limit 600", 8, 8, 600
			s.mayRefuse, s.mustUse = 0.02, 0
		}),
	}
	for _, name := range []string{retryableName, gofriName, plainName, rateName} {
		all = append(all, with(func(s *scene) {
			s.name, s.who, s.beside, s.mustUse = name, name, true, 0
		}))
	}
	return append(append(all, scriptScenes()...), phpScenes()...)
}

// scriptScenes returns the cases in JavaScript.
func scriptScenes() (all []scene) {
	one := scene{name: "Node, 64 calls", who: jsName, language: javascript, processes: 1, goroutines: 64, limit: 60, mustUse: 97, beside: true}
	fast, slow, tabs := one, one, one
	fast.name, fast.shift, fast.beside = "Node, 64 calls, clock 10 minutes fast", 10*time.Minute, false
	slow.name, slow.shift, slow.beside = "Node, 64 calls, clock 10 minutes slow", -10*time.Minute, false
	tabs.name, tabs.language, tabs.processes, tabs.goroutines, tabs.mustUse, tabs.beside = "three tabs of 8 calls", browser, 3, 8, 95, false
	all = append(all, one, fast, slow, tabs)
	for _, name := range []string{fetchName, pRetryName, kyName, axiosName} {
		other := one
		other.name, other.who, other.mustUse = name, name, 0
		all = append(all, other)
	}
	return all
}

// phpScenes returns the cases in PHP. A PHP process without an event loop sends one request at a
// time, so some cases have 64 processes.
func phpScenes() (all []scene) {
	one := scene{name: "PHP, 8 processes of 8 calls (Guzzle), one state file", who: phpGuzzleName, language: php, processes: 8, goroutines: 8, limit: 60, shared: true, notFirst: true, mustUse: 97, beside: true}
	single := one
	single.name, single.who, single.processes, single.goroutines = "PHP, 64 processes of one call (PSR-18), one state file", phpName, 64, 1
	fast, slow := one, one
	fast.name, fast.shift, fast.beside = "PHP, 8 processes of 8 calls, clock 10 minutes fast", 10*time.Minute, false
	slow.name, slow.shift, slow.beside = "PHP, 8 processes of 8 calls, clock 10 minutes slow", -10*time.Minute, false
	all = append(all, one, single, fast, slow)
	for _, name := range []string{guzzleName, guzzleRetryName} {
		other := one
		other.name, other.who, other.shared, other.mustUse = name, name, false, 0
		all = append(all, other)
	}
	remote := single
	remote.name, remote.who, remote.shared, remote.mustUse = wpRemoteName, wpRemoteName, false, 0
	return append(all, remote)
}

// choose returns the cases whose names contain an element of a comma-separated list.
func choose(list string) (chosen []scene) {
	words := strings.Split(strings.ToLower(list), ",")
	for _, s := range scenes() {
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s.name, w) }) {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

// usable returns how many units of each window the callers may spend.
func (s scene) usable() int64 {
	if s.everything {
		return s.limit
	}
	return s.limit - pacer.Threshold(s.limit) + 1
}

// A plan is what is measured.
type plan struct {
	dir, weir string
	windows   int
	per       time.Duration
	together  int // cases at the same time
	chosen    []scene
}

// long reports whether the run is long enough to measure the used share of the budget. That the
// last window is spent within a second after it opens, as whole seconds allow, must not matter.
func (p plan) long() bool { return time.Duration(p.windows)*p.per >= time.Minute }

// measure runs every case, each with its own server, data directory and credential, and then the
// overhead. A case that fails is reported, and the others go on.
func (p plan) measure(ctx context.Context, r *results) error {
	r.found = make([]figures, len(p.chosen))
	var group sync.WaitGroup
	free := make(chan struct{}, p.together)
	for i, s := range p.chosen {
		free <- struct{}{}
		group.Go(func() {
			defer func() { <-free }()
			fmt.Fprintf(os.Stderr, "%s: %s\n", time.Now().Format(time.TimeOnly), s.name)
			f, err := p.play(ctx, s, i)
			if err != nil {
				f.problem = err.Error()
				fmt.Fprintf(os.Stderr, "problem: %s: %v\n", s.name, err)
			}
			r.found[i] = f
			fmt.Fprintf(os.Stderr, "  %s\n", strings.Join(f.row(), " | "))
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(p.chosen) == len(scenes()) {
		fmt.Fprintf(os.Stderr, "%s: overhead\n", time.Now().Format(time.TimeOnly))
		r.overheads = overheads()
	}
	return nil
}

// play runs one case.
func (p plan) play(ctx context.Context, s scene, i int) (f figures, err error) {
	if ctx.Err() != nil {
		return f, ctx.Err()
	}
	f = figures{scene: s, requests: int(s.usable()) * p.windows}
	dir := filepath.Join(p.dir, fmt.Sprint(i))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return f, err
	}
	server, err := startServer(p.weir, dir, s.limit, p.per)
	if err != nil {
		return f, err
	}
	defer server.stop()
	var jobs []job
	for n := range s.processes {
		first, next := f.requests*n/s.processes, f.requests*(n+1)/s.processes
		j := job{URL: server.url, Token: server.token, Who: s.who, First: first, Requests: next - first, Goroutines: s.goroutines,
			Limit: s.limit, Per: p.per, Shift: s.shift, Everything: s.everything, Within: time.Duration(2*p.windows+3)*p.per + 20*time.Second}
		if s.shared {
			j.Shared = filepath.Join(dir, "view")
		}
		if s.language == browser {
			j.Tabs = s.processes
		}
		jobs = append(jobs, j)
	}
	if s.language == browser {
		f.report, err = runTabs(ctx, server, jobs)
	} else {
		f.report, err = runAll(ctx, s.language, jobs)
	}
	f.missing, f.again, f.mangled = server.upstream.count(f.requests)
	f.weigh(p.per)
	return f, err
}
