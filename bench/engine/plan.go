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
	brief  bool          // the bare contestants take part only in the first case
}

// A benchCase is one measurement of all contestants.
type benchCase struct {
	name  string
	setup func(w *world) setup
	left  []string                    // contestants that do not take part
	own   func(w *world) []contestant // who takes part instead of the chosen ones; nil: those
	fresh bool                        // each turn needs a new process
	turn  func(ctx context.Context, p plan, w *world, s *server) (figures, error)
}

// The names of cases.
const (
	servedCase   = "served"
	steadyCase   = "steady"
	sessionCase  = "session"
	keyCase      = "key"
	refusedCase  = "refused"
	tlsCase      = "tls"
	uploadCase   = "upload"
	downloadCase = "download"
	idleCase     = "idle"
	settledCase  = "settled"
	jsonCase     = "settled-json"
	observedCase = "observed"
)

func cases() []benchCase {
	plain := func(w *world) setup { return setup{limit: plenty, by: "ip", upstream: w.small} }
	large := func(w *world) setup { return setup{limit: plenty, by: "ip", upstream: w.bodies} }
	return []benchCase{
		{name: servedCase, setup: plain, turn: turnOfSmall},
		{name: steadyCase, setup: plain, turn: func(ctx context.Context, p plan, _ *world, s *server) (figures, error) {
			return atRate(ctx, s, p.rate, p.length)
		}},
		{name: sessionCase, left: []string{floorName}, turn: turnOfSession,
			setup: func(w *world) setup { return setup{limit: plenty, by: "session or ip", upstream: w.small} }},
		{name: keyCase, left: []string{floorName},
			setup: func(w *world) setup { return setup{limit: plenty, by: byKey, upstream: w.small} },
			turn: func(ctx context.Context, p plan, _ *world, s *server) (figures, error) {
				return drive(ctx, s, "http", keyField, served, p.length)
			}},
		{name: refusedCase, left: []string{floorName, proxyName},
			setup: func(w *world) setup { return setup{limit: 1, by: "ip", upstream: w.small} },
			turn: func(ctx context.Context, p plan, _ *world, s *server) (figures, error) {
				return drive(ctx, s, "http", "", refused, p.length)
			}},
		{name: tlsCase, left: []string{floorName},
			setup: func(w *world) setup { return setup{limit: plenty, by: "ip", upstream: w.small, tls: true} },
			turn: func(ctx context.Context, p plan, _ *world, s *server) (figures, error) {
				return drive(ctx, s, "https", "", served, p.length)
			}},
		{name: uploadCase, setup: large, turn: func(ctx context.Context, p plan, w *world, s *server) (figures, error) {
			return bodies(ctx, s, w.body, upload, p.length)
		}},
		{name: downloadCase, setup: large, turn: func(ctx context.Context, p plan, w *world, s *server) (figures, error) {
			return bodies(ctx, s, w.body, download, p.length)
		}},
		{name: idleCase, setup: plain, left: []string{floorName}, fresh: true, turn: func(ctx context.Context, p plan, _ *world, s *server) (figures, error) {
			return holdIdle(ctx, s, p.idle)
		}},
		{name: settledCase, own: settledContestants(toldByField), turn: turnOfSmall,
			setup: func(w *world) setup { return setup{limit: plenty, by: "ip", cost: costByField, upstream: w.costs} }},
		{name: jsonCase, own: settledContestants(toldByBody), turn: turnOfSmall,
			setup: func(w *world) setup { return setup{limit: plenty, by: "ip", cost: costByBody, upstream: w.json} }},
		{name: observedCase, setup: plain, own: observedContestants, turn: func(ctx context.Context, p plan, _ *world, s *server) (figures, error) {
			return drive(ctx, s, "http", observedFields, served, p.length)
		}},
	}
}

// turnOfSmall sends small requests that are served.
func turnOfSmall(ctx context.Context, p plan, _ *world, s *server) (figures, error) {
	return drive(ctx, s, "http", "", served, p.length)
}

// turnOfSession sends the same verified session with every request.
func turnOfSession(ctx context.Context, p plan, w *world, s *server) (figures, error) {
	return drive(ctx, s, "http", authorization(w), served, p.length)
}

func authorization(w *world) string { return "Authorization: Bearer " + w.session }

// prove checks that Weir accepts the credential of a case, if that has one: otherwise it would
// measure an address.
func (c *benchCase) prove(w *world, s *server) error {
	path, field := "", ""
	switch c.name {
	case sessionCase:
		path, field = "/session/proof", authorization(w)
	case keyCase:
		path, field = "/key/proof", keyField
	default:
		return nil
	}
	with, err := ask(s.address, path, field)
	if err != nil {
		return err
	}
	without, err := ask(s.address, path, "")
	if err != nil {
		return err
	}
	if with != 200 || without != 401 {
		return fmt.Errorf("the credential makes no difference: with it the answer is %d, without %d", with, without)
	}
	return nil
}

func caseNames() (names []string) {
	for _, c := range cases() {
		names = append(names, c.name)
	}
	return names
}

// chooseCases returns the cases of a comma-separated list.
func chooseCases(list string) (chosen []benchCase, err error) {
	for name := range strings.SplitSeq(list, ",") {
		i := slices.Index(caseNames(), name)
		if i < 0 {
			return nil, fmt.Errorf("choose cases: %q is not one of %s", name, strings.Join(caseNames(), ","))
		}
		chosen = append(chosen, cases()[i])
	}
	return chosen, nil
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
	for round := range p.rounds {
		for i := range all {
			e := &all[(i+round)%len(all)]
			if r.failed(c.name, e.name) || ctx.Err() != nil {
				continue
			}
			found, err := p.turn(ctx, w, c, e)
			r.take(c.name, e.name, found, err)
		}
	}
	if p.perf != "" && !c.fresh {
		for _, e := range all {
			if !r.failed(c.name, e.name) {
				if err := p.record(ctx, w, c, e); err != nil {
					return err
				}
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
				if strings.HasPrefix(one.name, "weir") {
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
