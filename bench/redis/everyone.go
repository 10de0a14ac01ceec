package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/bench/page"
	"github.com/weirlimit/weir/redisstore"
)

// A budget for everyone is one key, which callers of several nodes spend until it is used up. Each
// contestant must admit exactly the budget.
const (
	everyoneLimit   = 1_000_000
	everyonePer     = time.Minute
	everyoneNodes   = 4
	everyoneCallers = 64
	everyoneCase    = "everyone"

	sharedName = "weir, Store.Take on 4 nodes"
	leasedName = "weir, Store.Take on 4 nodes, with leases"
	pocketName = "weir, Store.Take from leased units, one caller"
)

// several is a limiter with several nodes; each worker has the next one.
type several struct {
	nodes []limiter
	next  *atomic.Int64
}

func (s several) worker() func(context.Context, string) (bool, error) {
	return s.nodes[int(s.next.Add(1))%len(s.nodes)].worker()
}

func (s several) close() error {
	for _, n := range s.nodes {
		if err := n.close(); err != nil {
			return err
		}
	}
	return nil
}

// openNodes opens stores of Weir as a contestant.
func openNodes(n int, how redisstore.Leasing) func(setup) (limiter, error) {
	return func(s setup) (limiter, error) {
		all := several{next: new(atomic.Int64)}
		for range n {
			store, err := redisstore.New(context.Background(), redisstore.Options{Addresses: []string{s.Server.address}, Secret: secret, Leases: how})
			if err != nil {
				return nil, err
			}
			all.nodes = append(all.nodes, take{store, []window{{scope, s.Limit, int64(s.Per / time.Second)}}})
		}
		return all, nil
	}
}

// sharers returns the contestants for a budget that all share: Weir without and with leases, and
// those of the chosen that count by a window.
func sharers(chosen []contestant) []contestant {
	all := []contestant{
		{name: sharedName, open: openNodes(everyoneNodes, redisstore.LeasesOff)},
		{name: leasedName, open: openNodes(everyoneNodes, redisstore.LeasesAuto)},
	}
	return append(all, named(chosen, ululeName)...)
}

// everyone measures how long a budget lasts, and what that costs the server.
func (p *plan) everyone(ctx context.Context, r *results) error {
	if len(named(p.chosen, takeName)) == 0 {
		return nil
	}
	for round := range p.rounds {
		p.say("round %d of %d, one budget for everyone", round+1, p.rounds)
		for _, c := range sharers(p.chosen) {
			figures, err := p.spendAll(ctx, c)
			r.take(everyoneCase, c, figures, err)
		}
		c := contestant{name: pocketName, open: openNodes(1, redisstore.LeasesAuto)}
		if err := p.server.flush(ctx); err != nil {
			return err
		}
		figures, err := p.turn(ctx, c, plenty, turn{Callers: 1, Length: p.length, Keys: keys{pool: []string{name(0)}}, Sparse: true})
		r.take(everyoneCase, c, figures, err)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// spendAll spends the budget.
func (p *plan) spendAll(ctx context.Context, c contestant) (map[string]float64, error) {
	if err := p.server.flush(ctx); err != nil {
		return nil, err
	}
	s := p.setup(c, everyoneLimit, everyoneCallers)
	s.Per = everyonePer
	l, err := c.open(s)
	if err != nil {
		return nil, err
	}
	defer l.close()
	before, err := p.server.read(ctx)
	if err != nil {
		return nil, err
	}
	start, own := time.Now(), ownCPU()
	admitted, refusals, err := untilSpent(ctx, l)
	if err != nil {
		return nil, err
	}
	took := time.Since(start)
	own = ownCPU() - own
	after, err := p.server.read(ctx)
	if err != nil {
		return nil, err
	}
	if took < everyonePer-2*time.Second && admitted != everyoneLimit {
		return nil, fmt.Errorf("%w: %d units of %d were admitted", errWrong, admitted, everyoneLimit)
	}
	n := float64(admitted)
	return map[string]float64{
		"rate": n / took.Seconds(), "server": float64(after.cpu-before.cpu) / 1e3 / n, "client": float64(own) / 1e3 / n,
		"asked": float64(after.asked - before.asked), "early": refusals,
	}, nil
}

// untilSpent takes with all callers until the budget is used up or its window is about to end. It
// returns how many units were admitted, and which part of the takes was refused before all were.
func untilSpent(ctx context.Context, l limiter) (admitted int64, early float64, err error) {
	var units, refused atomic.Int64
	var all sync.WaitGroup
	var once sync.Once
	ctx, cancel := context.WithTimeout(ctx, everyonePer-2*time.Second)
	defer cancel()
	for range everyoneCallers {
		take := l.worker()
		all.Go(func() {
			for units.Load() < everyoneLimit && ctx.Err() == nil {
				allowed, failed := take(context.WithoutCancel(ctx), name(0))
				switch {
				case failed != nil:
					once.Do(func() { err = failed })
					cancel()
					return
				case allowed:
					units.Add(1)
				case units.Load() < everyoneLimit:
					refused.Add(1)
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	n := units.Load()
	return n, float64(refused.Load()) / float64(n), err
}

// everyoneTable returns the table of the budget for everyone.
func (r *results) everyoneTable() table {
	t := table{
		title: fmt.Sprintf("One budget for everyone, 1 million a minute, spent by %d callers as fast as they can: medians; times Weir without leases", everyoneCallers),
		head:  []string{"", "decisions/s", "server CPU, µs a decision", "client CPU, µs", "takes that the server ran", "refused before it was spent"},
	}
	for _, name := range []string{sharedName, leasedName, ululeName, pocketName} {
		if len(r.of(everyoneCase, "rate", name)) == 0 {
			continue
		}
		row := []string{bold(name), r.beside(everyoneCase, "rate", name, sharedName), r.beside(everyoneCase, "server", name, sharedName), r.one(everyoneCase, "client", name), none, none}
		if name == pocketName {
			row[1], row[2] = r.one(everyoneCase, "rate", name), none
		} else {
			row[4] = r.one(everyoneCase, "asked", name)
			row[5] = strings.TrimSpace(fmt.Sprintf("%.4f %%", 100*median(r.of(everyoneCase, "early", name))))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// everyoneText returns the table with its title and the machine.
func (r *results) everyoneText() string {
	t := r.everyoneTable()
	if len(t.rows) == 0 {
		return ""
	}
	return fmt.Sprintf("%s.\n\n%s:\n\n%s", r.machine, t.title, t)
}

// writeEveryone writes the table to dir/scale.md, between its two comments.
func (r *results) writeEveryone(dir string) error {
	text := r.everyoneText()
	if text == "" {
		return nil
	}
	return page.Fill(filepath.Join(dir, "scale.md"), "everyone", text)
}
