// Command redis measures Weir through a shared Redis beside other rate limiters for Go, and beside
// bare scripts on the same client. It starts its own redis-server, which has one core; the callers
// are goroutines of this process, which has another. The contestants take turns within each round,
// so that ratios are valid even if absolute figures vary.
//
//	go run ./redis -quick                  short turns, once: about a minute
//	go run ./redis                         everything: about a quarter of an hour, undisturbed
//	go run ./redis -contestants bare,weir  some of them, by parts of their names
//	go run ./redis -docs ../docs           the same, and rewrites docs/scale.md
//	go run ./redis -everyone               one budget for everyone alone, with leases and without
//	go run ./redis -trips                  round trips of nodes that lease, in real time
//	go run ./redis -cpuprofile f           profiles Weir.s store; -contestants decide: all of Weir
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	p := plan{callers: []int{64, 512}, keys: 100_000}
	flag.IntVar(&p.rounds, "rounds", 5, "alternating rounds; the median counts")
	flag.DurationVar(&p.length, "length", 3*time.Second, "length of a turn")
	names := flag.String("contestants", "", "which contestants, by parts of their names; empty means all")
	quick := flag.Bool("quick", false, "one round of short turns, with a tenth of the keys")
	binary := flag.String("server", "redis-server", "the server to start: redis-server or valkey-server")
	docs := flag.String("docs", "", "the directory whose scale.md gets the tables")
	everyone := flag.Bool("everyone", false, "only the budget that everyone shares")
	trips := flag.Bool("trips", false, "only the round trips that leases save: some ten minutes")
	profile := flag.String("cpuprofile", "", "a file for a CPU profile of the first chosen contestant of Weir's, which then runs alone")
	flag.Parse()
	if *quick {
		p.keys /= 10
		p.rounds, p.length = 1, time.Second
		flag.Parse() // explicit flags win
	}
	if p.chosen = choose(*names); len(p.chosen) == 0 {
		return fmt.Errorf("choose contestants: %q is not part of any name", *names)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	found := describeMachine()
	s, err := startServer(ctx, *binary)
	if err != nil {
		return err
	}
	defer s.stop()
	p.server = s
	found.Server = s.version
	found.Pinned = pinBoth(s)
	runtime.GOMAXPROCS(1)

	r := newResults(found, p)
	if *profile != "" {
		return p.profile(ctx, *profile, r)
	}
	measure, write := p.measure, r.writeDocs
	if *everyone {
		measure, write = p.everyone, r.writeEveryone
	}
	if *trips {
		measure, write = p.trips, r.writeTrips
	}
	if err := measure(ctx, r); err != nil {
		return err
	}
	r.print(os.Stdout)
	if *docs != "" {
		return write(*docs)
	}
	return nil
}

// choose returns the contestants whose names contain an element of a comma-separated list.
func choose(list string) (chosen []contestant) {
	words := strings.Split(strings.ToLower(list), ",")
	for _, c := range contestants() {
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(strings.ToLower(c.name), w) }) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// pinBoth pins the server to the first core and this process to the second, and describes the
// result.
func pinBoth(s *server) string {
	if runtime.NumCPU() < 2 {
		return "server and client share one core"
	}
	if err := pin(s.pid(), 0); err != nil {
		return "not pinned to cores: " + err.Error()
	}
	if err := pin(os.Getpid(), 1); err != nil {
		return "not pinned to cores: " + err.Error()
	}
	return "the server on one core, the client on another"
}
