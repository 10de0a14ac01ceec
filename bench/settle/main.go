// Command settle measures by how much limiters pass a budget if the cost of a request is known only
// from its answer: many requests arrive at once, on a budget for a few of them.
//
//	go run ./settle              100 requests on a budget for 10
//	go run ./settle -requests 1000 -fit 10 -rounds 100
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// cost is what each request reserves, and uses, in units. Its answer tells it.
const cost = 4000

func main() {
	requests := flag.Int("requests", 100, "requests that arrive at once")
	fit := flag.Int64("fit", 10, "requests that fit into the budget")
	rounds := flag.Int("rounds", 20, "repetitions, each on a new budget")
	flag.Parse()
	if err := run(*requests, *fit, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// A contestant admits requests, and is told what each has cost when it has been answered.
type contestant interface {
	// begin reports whether a request is admitted, and returns what is to be called with its cost.
	begin() (settle func(units int64), admitted bool)
}

func run(requests int, fit int64, rounds int) error {
	fmt.Printf("%d requests of %d units at once, on a budget of %d; the worst of %d rounds\n\n", requests, cost, fit*cost, rounds)
	for _, c := range []struct {
		name string
		open func(budget int64) (contestant, error)
	}{
		{"reserve, then settle (Weir)", openWeir},
		{"check, then count the answer", func(budget int64) (contestant, error) { return &checker{budget: budget}, nil }},
	} {
		var worst, admitted int64
		for range rounds {
			limiter, err := c.open(fit * cost)
			if err != nil {
				return err
			}
			if n := atOnce(limiter, requests); n >= admitted {
				admitted, worst = n, max(n-fit, 0)
			}
		}
		fmt.Printf("%-30s %4d admitted, %4d too many: %.1f times the budget\n", c.name, admitted, worst, float64(admitted)/float64(fit))
	}
	return nil
}

// atOnce sends all requests at once, and answers them when all have been decided. It returns how
// many were admitted.
func atOnce(c contestant, requests int) int64 {
	var start, decided, done sync.WaitGroup
	var admitted atomic.Int64
	start.Add(1)
	decided.Add(requests)
	for range requests {
		done.Go(func() {
			start.Wait()
			settle, ok := c.begin()
			decided.Done()
			if !ok {
				return
			}
			admitted.Add(1)
			decided.Wait() // all of them are under way
			settle(cost)
		})
	}
	start.Done()
	done.Wait()
	return admitted.Load()
}

// A checker admits while the budget is not spent, and counts each answer, as limiters do that learn
// the cost of a request from its answer and reserve nothing.
type checker struct {
	mu           sync.Mutex
	used, budget int64
}

func (c *checker) begin() (func(int64), bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return func(units int64) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.used += units
	}, c.used < c.budget
}

type settler struct{ decider *weir.Decider }

func openWeir(budget int64) (contestant, error) {
	store, err := memstore.New(memstore.Options{Memory: memstore.MinMemory})
	if err != nil {
		return nil, err
	}
	decider, err := weir.New(weir.Policy{Limiters: []weir.Limiter{{
		Name:    "chat",
		Windows: []weir.Window{{Limit: budget, Per: time.Hour, Key: weir.Key{{"ip"}}}},
		Cost:    cost,
		Actual:  weir.Reading{Form: weir.ReadHeader, Name: "X-Cost"},
	}}}, store, weir.Options{})
	return &settler{decider}, err
}

// caller is the sender of all requests.
type caller struct{}

func (caller) AppendKey(dst []byte, _ string) ([]byte, bool) {
	return append(dst, "192.0.2.1"...), true
}

func (s *settler) begin() (func(int64), bool) {
	ctx, scratch := context.Background(), new(weir.Scratch)
	d, err := s.decider.Decide(ctx, weir.Request{Limiters: []string{"chat"}, Keys: caller{}, Scratch: scratch})
	return func(units int64) {
		s.decider.Spent(ctx, scratch, units, nil)
		s.decider.End(ctx, scratch)
	}, err == nil && d.Allowed
}
