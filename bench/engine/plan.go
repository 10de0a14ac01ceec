package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A plan is what is measured, and how often.
type plan struct {
	cases  []benchCase
	chosen []contestant
	rounds int
	length time.Duration // of a turn
	idle   int           // connections that are kept open
	rate   float64       // requests a second, in the case with equal rates
	perf   string        // a directory; empty: no recording
	// profile collects CPU profiles of Weir after the rounds; nil: none.
	profile *profiler
	brief   bool // the bare contestants take part only in the first case
}

// measure runs all cases in turn. A contestant that fails is reported, and left out of the rest of
// that case.
func (p plan) measure(ctx context.Context, w *world, r *results) error {
	for _, c := range p.cases {
		fmt.Fprintf(os.Stderr, "%s: %s\n", time.Now().Format(time.TimeOnly), c.name)
		if err := p.takeTurns(ctx, w, c, r); err != nil {
			return err
		}
	}
	return nil
}

// An entrant is a contestant in one case.
type entrant struct {
	contestant
	server *server // nil: it is started for each turn
}

func (p plan) takeTurns(ctx context.Context, w *world, c benchCase, r *results) error {
	all := p.enter(ctx, w, c, r)
	defer func() {
		for _, e := range all {
			if e.server != nil {
				e.server.stop()
			}
		}
	}()
	rounds := p.rounds
	if c.rounds > 0 {
		rounds = min(rounds, c.rounds)
	}
	for round := range rounds {
		for i := range all {
			e := &all[(i+round)%len(all)]
			if r.failed(c.name, e.name) || ctx.Err() != nil {
				continue
			}
			found, err := p.turn(ctx, w, c, e)
			r.take(c.name, e.name, found, err)
		}
	}
	for _, e := range all {
		if c.fresh || r.failed(c.name, e.name) {
			continue
		}
		if p.perf != "" {
			if err := p.record(ctx, w, c, e); err != nil {
				return err
			}
		}
		if p.profile != nil && e.isWeir() {
			if err := p.profile.record(ctx, p, w, c, e); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// enter starts the contestants that take part, and warms them up.
func (p plan) enter(ctx context.Context, w *world, c benchCase, r *results) (all []entrant) {
	warm := p
	warm.length = min(p.length, time.Second)
	chosen := p.chosen
	if c.own != nil {
		chosen = c.own(w)
	}
	for _, one := range chosen {
		if slices.Contains(c.left, one.name) || p.brief && one.bare && c.name != servedCase || ctx.Err() != nil {
			continue
		}
		e := entrant{contestant: one}
		if !c.fresh {
			var err error
			if e.server, err = one.start(ctx, w, c.setup(w)); err == nil {
				if one.isWeir() {
					err = c.prove(w, e.server)
				}
				if err == nil {
					_, err = c.turn(ctx, warm, w, e.server)
				}
			}
			if err != nil {
				r.take(c.name, one.name, nil, err)
			}
		}
		all = append(all, e)
	}
	return all
}

func (p plan) turn(ctx context.Context, w *world, c benchCase, e *entrant) (figures, error) {
	s := e.server
	if c.fresh {
		var err error
		if s, err = e.start(ctx, w, c.setup(w)); err != nil {
			return nil, err
		}
		defer s.stop()
	}
	defer s.forget()
	return c.turn(ctx, p, w, s)
}

// record runs one more turn under perf.
func (p plan) record(ctx context.Context, w *world, c benchCase, e entrant) error {
	if err := os.MkdirAll(p.perf, 0o755); err != nil {
		return err
	}
	file := filepath.Join(p.perf, c.name+"-"+strings.NewReplacer(", --", "-", ", ", "-", ": ", "-", " ", "-").Replace(e.name)+".data")
	perf := exec.CommandContext(ctx, "perf", "record", "-q", "-g", "-F", "1999", "-o", file, "-p", strconv.Itoa(e.server.pid))
	perf.Stderr, perf.Cancel = os.Stderr, func() error { return perf.Process.Signal(os.Interrupt) }
	if err := perf.Start(); err != nil {
		return fmt.Errorf("record %s: %w", c.name, err)
	}
	_, err := p.turn(ctx, w, c, &e)
	perf.Process.Signal(os.Interrupt)
	perf.Wait() // its status reports the interrupt
	return err
}
