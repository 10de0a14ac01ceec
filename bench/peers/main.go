// Command peers measures Weir's embedded store at the interface weir.Store beside other rate
// limiters for Go, and beside a floor: the hash, the clock and the atomic add that each of them
// needs. Every contestant runs in a process of its own, all decide on the same keys, and they take
// turns within each round, so that ratios are valid even if absolute figures vary.
//
//	go run ./peers -quick                 the smaller cases, once: about a minute
//	go run ./peers -cases hot,million     some of them
//	go run ./peers                        everything: about an hour, undisturbed
//	go run ./peers -docs ../docs          the same, and rewrites docs/performance.md and its charts
//	go run ./peers -from f -docs ../docs  the page again from figures of -save
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

func main() {
	var err error
	if len(os.Args) == 2 && os.Args[1] == "child" {
		err = serveChild(os.Stdin, os.Stdout)
	} else {
		err = run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	p := plan{turns: 7, length: 100 * time.Millisecond, many: 10_000_000}
	flag.IntVar(&p.rounds, "rounds", 5, "alternating rounds, each with fresh processes; the median counts")
	only := flag.String("cases", "", "which cases, of "+strings.Join(caseNames(), ",")+"; empty means all")
	names := flag.String("contestants", "", "which contestants, by parts of their names; the floor always runs; empty means all")
	quick := flag.Bool("quick", false, "one round of short turns, a million keys instead of ten million, without waits for windows to end: about a minute")
	disk := flag.String("disk", os.TempDir(), "a directory on the disk that is measured")
	docs := flag.String("docs", "", "the directory whose performance.md and charts are rewritten")
	save := flag.String("save", "", "a file to which the figures of each case are added, as JSON; figures of other cases are kept")
	from := flag.String("from", "", "do not measure: show the figures of -save")
	flag.Parse()
	if *quick {
		p.rounds, p.turns, p.length, p.many = 1, 3, 50*time.Millisecond, 1_000_000
	}
	var err error
	if p.cases, err = chooseCases(*only, *quick); err != nil {
		return err
	}
	if p.chosen, err = chooseContestants(*names); err != nil {
		return err
	}
	kept := newResults()
	if *from != "" {
		if kept, err = readResults(*from); err != nil {
			return err
		}
	} else {
		var remove func()
		if p.places, remove, err = makePlaces(*disk); err != nil {
			return err
		}
		defer remove()
		stop := onInterrupt(remove)
		defer stop()
		if err := p.measure(kept, *save); err != nil {
			return err
		}
		if *save != "" {
			if kept, err = readResults(*save); err != nil {
				return err
			}
		}
	}
	kept.print(os.Stdout)
	if *docs != "" {
		return kept.writeDocs(*docs)
	}
	return nil
}

// onInterrupt runs clean and ends the process on an interrupt; its children end with it. stop
// undoes that.
func onInterrupt(clean func()) (stop func()) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	go func() {
		if _, ok := <-interrupted; ok {
			clean()
			os.Exit(1)
		}
	}()
	return func() { signal.Stop(interrupted); close(interrupted) }
}

// chooseContestants returns those whose names contain an element of a comma-separated list, and the
// floor.
func chooseContestants(list string) (chosen []string, err error) {
	words := strings.Split(list, ",")
	for _, c := range slices.Concat(contestants(), ourselves()) {
		if c.name == floorName || slices.ContainsFunc(words, func(w string) bool { return strings.Contains(c.name, w) }) {
			chosen = append(chosen, c.name)
		}
	}
	if len(chosen) < 2 {
		return nil, fmt.Errorf("choose contestants: %q is not part of any name", list)
	}
	return chosen, nil
}
