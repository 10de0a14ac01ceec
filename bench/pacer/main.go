// Command pacer measures callers that share a limit: `weir serve` is a separate process, the
// callers are calls of one or several other processes, and an upstream behind the server counts
// what was served. Refusals are counted on the wire. The callers are in Go, in JavaScript (Node,
// and the tabs of a browser) and in PHP; the latter need node, npm, chromium and PHP with Guzzle.
//
//	go run ./pacer -quick                short windows, not for the used share: about two minutes
//	go run ./pacer -together 4           everything, four cases at a time: about five minutes
//	go run ./pacer                       everything: about twenty minutes, mostly waiting
//	go run ./pacer -cases 'clock,gofri'  some cases, by parts of their names
//	go run ./pacer -docs ../docs         the same, and rewrites docs/pacing.md
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	run := run
	if len(os.Args) == 2 && os.Args[1] == childFlag {
		run = child
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	p := plan{}
	flag.IntVar(&p.windows, "windows", 10, "number of windows whose budget each case spends")
	flag.DurationVar(&p.per, "window", 10*time.Second, "the length of a window, whole seconds")
	flag.IntVar(&p.together, "together", 1, "number of cases at the same time, which mostly wait")
	cases := flag.String("cases", "", "which cases, by parts of their names; empty means all and the overhead")
	quick := flag.Bool("quick", false, "three windows of four seconds")
	docs := flag.String("docs", "", "the directory whose pacing.md gets the tables")
	weir := flag.String("weir", "", "the weir binary to measure; empty builds it")
	flag.Parse()
	if *quick {
		p.windows, p.per = 3, 4*time.Second
		flag.Parse() // explicit flags win
	}
	if p.windows < 2 || p.together < 1 || p.per < time.Second || p.per%time.Second != 0 {
		return fmt.Errorf("measure %d windows of %v, %d cases together: want two windows at least, of whole seconds, and a case", p.windows, p.per, p.together)
	}
	if p.chosen = choose(*cases); len(p.chosen) == 0 {
		return fmt.Errorf("choose cases: %q is not part of any name", *cases)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "weir-bench-pacer")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if p.dir, p.weir = dir, *weir; p.weir == "" {
		if p.weir, err = buildWeir(ctx, dir); err != nil {
			return err
		}
	}
	if err := installScripts(ctx, p.chosen); err != nil {
		return err
	}
	r := &results{machine: describeMachine(), plan: p}
	if err := p.measure(ctx, r); err != nil {
		return err
	}
	fmt.Print(r)
	if *docs != "" {
		return r.writeDocs(*docs)
	}
	return nil
}
