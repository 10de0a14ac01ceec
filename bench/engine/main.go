// Command engine measures Weir as a gateway, in each of its engines, beside nginx with limit_req,
// HAProxy with a stick table, a bare page of fasthttp, a bare ReverseProxy, and a floor that passes
// bytes on unread. Each contestant has one core; the load and the upstream share the other. The
// contestants take turns within each round, so that ratios are valid even if absolute figures vary.
//
//	go run ./engine -quick                   three short rounds for a first idea: five minutes
//	go run ./engine                          everything: about two hours, undisturbed
//	go run ./engine -cases 'served,http2*' -contestants nginx,weir
//	go run ./engine -cases 'rate*'           the highest rate that each keeps with a small p99
//	go run ./engine -docs ../docs            the same, and rewrites docs/performance.md
//	go run ./engine -save f                  saves the figures as JSON; -from f shows them again
//	go run ./engine -cases served -perf dir  records with perf, into dir
//	go run ./engine -profile f               records CPU profiles of Weir, and merges them into f
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weirlimit/weir/bench/page"
)

func main() {
	var err error
	if len(os.Args) > 2 && os.Args[1] == "child" {
		err = serveChild(os.Args[2], os.Args[3:])
	} else {
		err = run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	var p plan
	flag.IntVar(&p.rounds, "rounds", 9, "alternating rounds, at most 3 of a case with a search or with handshakes; the median counts")
	flag.DurationVar(&p.length, "length", 3*time.Second, "length of one turn")
	flag.IntVar(&p.idle, "idle", 10_000, "number of open connections")
	flag.Float64Var(&p.rate, "rate", 5_000, "requests a second in the case with the same load for all contestants")
	nice := flag.Int("nice", 0, "the nice value of all processes of the run: root's -20 takes precedence over others on a machine that is not idle")
	quick := flag.Bool("quick", false, "three rounds of a second, without the cases that take long, and with the bare contestants only in the first case, unless they are named")
	only := flag.String("cases", "", "which cases, by names and patterns as http2*; empty means all: "+strings.Join(caseNames(), ","))
	names := flag.String("contestants", "", "which contestants, by parts of their names; empty means all")
	weir := flag.String("weir", "", "the weir binary to measure; empty builds it")
	temp := flag.String("dir", "", "the directory for access logs and bodies during the run (default the system's temporary directory)")
	docs := flag.String("docs", "", "the directory whose performance.md gets the tables")
	save := flag.String("save", "", "a file that gets all figures, as JSON")
	from := flag.String("from", "", "do not measure: show the figures of -save")
	flag.StringVar(&p.perf, "perf", "", "a directory for perf's records of each contestant, written after the rounds of each case")
	profile := flag.String("profile", "", "a file that gets Weir's CPU profiles of all cases, merged, for go build -pgo")
	flag.Parse()
	if *quick {
		p.rounds, p.length, p.brief = 3, time.Second, *names == ""
		flag.Parse() // explicit flags win
	}
	if *from != "" {
		kept, err := readResults(*from)
		if err != nil {
			return err
		}
		return kept.show(*docs)
	}
	if err := keepToCore(loadCore, *nice); err != nil {
		return err
	}
	restore, err := preferSession(*nice)
	if err != nil {
		return err
	}
	defer restore()
	switch {
	case *only != "":
		if p.cases, err = chooseCases(*only); err != nil {
			return err
		}
	default:
		p.cases = slices.DeleteFunc(cases(), func(c benchCase) bool { return *quick && c.long })
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	w, remove, err := newWorld(ctx, *temp, *weir)
	if err != nil {
		return err
	}
	defer remove()
	if *profile != "" {
		p.profile, w.profiled = &profiler{file: *profile}, true
	}
	if p.chosen = choose(w.contestants(), *names); len(p.chosen) == 0 {
		return fmt.Errorf("choose contestants: %q is not part of any name", *names)
	}
	machine := describe(ctx, w)
	if *nice != 0 {
		machine += fmt.Sprintf("; at priority %d", *nice)
	}
	r := newResults(machine, p)
	if err := p.measure(ctx, w, r); err != nil {
		return err
	}
	if p.profile != nil {
		if err := p.profile.write(); err != nil {
			return err
		}
	}
	if *save != "" {
		if err := r.writeTo(*save); err != nil {
			return err
		}
	}
	return r.show(*docs)
}

// describe describes what the figures were measured on.
func describe(ctx context.Context, w *world) string {
	version := func(name string, args ...string) string {
		// wrk -v exits with status 1
		out, _ := exec.CommandContext(ctx, name, args...).CombinedOutput()
		first, _, _ := strings.Cut(string(out), "\n")
		return strings.TrimPrefix(first, "nginx version: ")
	}
	load, _, _ := strings.Cut(version("wrk", "-v"), " Copyright")
	balancer, _, _ := strings.Cut(version(w.haproxy, "-v"), " - ") // what follows is its support
	return fmt.Sprintf("%s; %s; %s; %s; fasthttp %s", page.Machine(), version(w.nginx, "-v"), balancer, load, moduleVersion("github.com/valyala/fasthttp"))
}

// choose returns the contestants whose names contain an element of a comma-separated list.
func choose(all []contestant, list string) (chosen []contestant) {
	words := strings.Split(strings.ToLower(list), ",")
	for _, c := range all {
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(strings.ToLower(c.name), w) }) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// show prints the tables, and writes them to docs/performance.md if docs is not empty.
func (r *results) show(docs string) error {
	text := r.String()
	fmt.Print(text)
	if docs == "" {
		return nil
	}
	return page.Fill(filepath.Join(docs, "performance.md"), "engine", text)
}
