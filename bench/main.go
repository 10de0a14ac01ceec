// Command bench compares Weir with its floor and its peers in one run: rounds alternate between the
// contestants, and each figure is the median of its rounds. Ratios within a table are valid on any
// machine; absolute figures belong to the machine that they were measured on.
//
//	go run .            everything (about three minutes)
//	go run . -rounds 9  less noise
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		fail(serve(os.Args[2]))
		return
	}
	rounds := flag.Int("rounds", 5, "alternating rounds; the median counts")
	length := flag.Duration("length", 2*time.Second, "length of one measurement over sockets")
	weir := flag.String("weir", "", "the weir binary to measure as a gateway; empty builds it")
	view := flag.Bool("operate", false, "measure only the cost of the features for operators (metrics, top callers, denial ids, a candidate, reloads)")
	flag.Parse()
	fmt.Printf("%s, %d cores, %s; medians of %d alternating rounds\n", runtime.Version(), runtime.NumCPU(), cpuName(), *rounds)
	if *view {
		fail(operate(*rounds, *length))
		return
	}
	inProcess(*rounds)
	fail(overSockets(*rounds, *length, *weir))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
