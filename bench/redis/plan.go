package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A plan is what is measured, and how often.
type plan struct {
	server  *server
	rounds  int
	length  time.Duration
	keys    int
	callers []int
	chosen  []contestant
	pool    keys
	sizes   map[string]int // the fastest size of the pool of connections, by contestant and callers
}

// per is the length of every window: longer than any run.
const per = time.Hour * 24

// measure runs every case. A contestant that fails is left out and reported.
func (p *plan) measure(ctx context.Context, r *results) error {
	p.pool = newPool(p.keys)
	for _, c := range slices.Concat(p.chosen, more()) {
		if c.counts {
			if err := p.verify(ctx, c); err != nil {
				r.problem(c, err)
				p.chosen = slices.DeleteFunc(p.chosen, func(o contestant) bool { return o.name == c.name })
			}
		}
	}
	everybody := slices.Clone(p.chosen)
	for _, c := range more() {
		if len(named(p.chosen, ofOne(c))) > 0 && !r.failed(c) {
			everybody = append(everybody, c)
		}
	}
	for _, c := range everybody {
		if err := p.openKeys(ctx, c); err != nil {
			return fmt.Errorf("open the keys of %s: %w", c.name, err)
		}
	}
	if err := p.sizePools(ctx, r); err != nil {
		return err
	}
	for round := range p.rounds {
		for _, callers := range p.callers {
			p.say("round %d of %d, %d callers", round+1, p.rounds, callers)
			t := turn{Callers: callers, Length: p.length, Keys: p.pool}
			for _, c := range everybody {
				figures, err := p.turn(ctx, c, plenty, t)
				r.take(caseName("open", callers), c, figures, err)
			}
			for _, c := range named(p.chosen, takeName, decideName) {
				figures, err := p.refused(ctx, c, callers)
				r.take(caseName("refused", callers), c, figures, err)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	if err := p.everyone(ctx, r); err != nil {
		return err
	}
	return p.opening(ctx, r)
}

func caseName(what string, callers int) string { return fmt.Sprintf("%s %d", what, callers) }

func (p *plan) say(form string, args ...any) { fmt.Fprintf(os.Stderr, form+"\n", args...) }

func (p *plan) setup(c contestant, limit int64, callers int) setup {
	s := setup{Server: p.server, Limit: limit, Per: per}
	if c.pooled {
		s.Pool = p.sizes[sizeName(c, callers)]
	}
	return s
}

func sizeName(c contestant, callers int) string { return fmt.Sprintf("%s %d", c.name, callers) }

// verify checks that a contestant counts: of a limit of two, it refuses the third unit.
func (p *plan) verify(ctx context.Context, c contestant) error {
	l, err := c.open(p.setup(c, 2, 1))
	if err != nil {
		return err
	}
	defer l.close()
	take := l.worker()
	for i, want := range []bool{true, true, false} {
		if got, err := take(ctx, name(0)); err != nil {
			return err
		} else if got != want {
			return fmt.Errorf("it does not count: allowed is %t for unit %d of 2", got, i+1)
		}
	}
	return p.server.flush(ctx)
}

// openKeys takes once for each key, so that its window is open.
func (p *plan) openKeys(ctx context.Context, c contestant) error {
	l, err := c.open(p.setup(c, plenty, p.callers[0]))
	if err != nil {
		return err
	}
	defer l.close()
	var next atomic.Int64
	var group sync.WaitGroup
	errs := make([]error, p.callers[0])
	for i := range errs {
		take := l.worker()
		group.Go(func() {
			for n := next.Add(1) - 1; n < int64(len(p.pool.pool)) && errs[i] == nil; n = next.Add(1) - 1 {
				_, errs[i] = take(ctx, p.pool.pool[n])
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// sizePools finds the fastest size of the pool of connections: ten, go-redis's default on one core,
// or one for each caller, or a number in between.
func (p *plan) sizePools(ctx context.Context, r *results) error {
	p.sizes = map[string]int{}
	for _, callers := range p.callers {
		for _, c := range p.chosen {
			if !c.pooled {
				continue
			}
			best, bestRate := 0, 0.0
			for _, size := range slices.Repeat(slices.Compact([]int{10, min(64, callers), callers}), 2) {
				p.sizes[sizeName(c, callers)] = size
				figures, err := p.turn(ctx, c, plenty, turn{Callers: callers, Length: p.length / 3, Keys: p.pool})
				if err != nil {
					return fmt.Errorf("size the pool of %s: %w", c.name, err)
				}
				if figures["rate"] > bestRate {
					best, bestRate = size, figures["rate"]
				}
			}
			p.sizes[sizeName(c, callers)] = best
			r.Pools[sizeName(c, callers)] = best
		}
	}
	return nil
}

// turn opens a contestant for one turn, so that no other has connections or memory meanwhile.
func (p *plan) turn(ctx context.Context, c contestant, limit int64, t turn) (map[string]float64, error) {
	l, err := c.open(p.setup(c, limit, t.Callers))
	if err != nil {
		return nil, err
	}
	defer l.close()
	return t.measure(ctx, p.server, l)
}

// refused takes for one key that has spent its limit.
func (p *plan) refused(ctx context.Context, c contestant, callers int) (map[string]float64, error) {
	l, err := c.open(p.setup(c, 1, callers))
	if err != nil {
		return nil, err
	}
	defer l.close()
	key := name(len(p.pool.pool))
	if _, err := l.worker()(ctx, key); err != nil {
		return nil, err
	}
	t := turn{Callers: callers, Length: p.length, Keys: keys{pool: []string{key}}, Refused: true, Sparse: true}
	return t.measure(ctx, p.server, l)
}

// opening takes for a new key each time, with the smallest number of callers. It comes last,
// because it deletes all keys.
func (p *plan) opening(ctx context.Context, r *results) error {
	for round := range p.rounds {
		p.say("round %d of %d, opening keys", round+1, p.rounds)
		for _, c := range named(p.chosen, bareName, correctName, takeName, decideName) {
			if err := p.server.flush(ctx); err != nil {
				return err
			}
			t := turn{Callers: p.callers[0], Length: p.length, Keys: keys{next: new(atomic.Int64)}}
			figures, err := p.turn(ctx, c, plenty, t)
			r.take(caseName("opening", t.Callers), c, figures, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// profile measures one of Weir's contestants alone, and writes where this process's time went.
func (p *plan) profile(ctx context.Context, path string, r *results) error {
	p.pool = newPool(p.keys)
	ours := named(p.chosen, takeName, decideName)
	if len(ours) == 0 {
		return errors.New("profile: none of Weir's was chosen")
	}
	c := ours[0]
	if err := p.openKeys(ctx, c); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	for range p.rounds {
		figures, err := p.turn(ctx, c, plenty, turn{Callers: p.callers[0], Length: p.length, Keys: p.pool})
		if err != nil {
			return err
		}
		p.say("%s decisions/s, p99 %s µs, server %s µs, client %s µs", digits(figures["rate"]), digits(figures["p99"]), digits(figures["server"]), digits(figures["client"]))
	}
	return nil
}
