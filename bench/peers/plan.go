package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// A plan is what is measured, and how often.
type plan struct {
	rounds int
	turns  int           // in each round, of each contestant
	length time.Duration // of a turn
	many   int           // keys of the large tables
	cases  []string
	chosen []string // contestants
	places places
}

// A kase is one measurement (case is a keyword).
type kase struct {
	name    string
	measure func(plan, *results)
}

func cases() []kase {
	return []kase{
		{"hot", plan.hot},         // one key, one core and two, and 64 goroutines a core
		{"refused", plan.refused}, // one key that has spent its limit
		{"million", plan.million}, // a million keys at random
		{"memory", plan.memory},   // bytes a key, and a full garbage collection
		{"expire", plan.expire},   // the worst decision while two million windows end
		// the worst decision while the table grows from a thousand keys to ten million
		{"grow", plan.grow},
		{"reopen", plan.reopen}, // from opening a file, after a kill, to the first decision
	}
}

func caseNames() (names []string) {
	for _, k := range cases() {
		names = append(names, k.name)
	}
	return names
}

// chooseCases returns the cases of a comma-separated list. A quick run leaves out the case that
// waits for windows to end, unless the list names it.
func chooseCases(list string, quick bool) ([]string, error) {
	if list == "" {
		return slices.DeleteFunc(caseNames(), func(name string) bool { return quick && name == "expire" }), nil
	}
	chosen := strings.Split(list, ",")
	for _, name := range chosen {
		if !slices.Contains(caseNames(), name) {
			return nil, fmt.Errorf("choose cases: %q is not one of %s", name, strings.Join(caseNames(), ", "))
		}
	}
	return chosen, nil
}

// measure adds each case to r, and to the file save unless that is empty.
func (p plan) measure(r *results, save string) error {
	r.Machine, r.Many = describeMachine(p.places[diskName]), p.many
	for _, k := range cases() {
		if slices.Contains(p.cases, k.name) {
			fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), k.name)
			k.measure(p, r)
			if save == "" {
				continue
			}
			if err := r.addTo(save); err != nil {
				return err
			}
		}
	}
	return nil
}

// of returns the chosen ones of the given contestants.
func (p plan) of(all ...[]contestant) (names []string) {
	for _, c := range slices.Concat(all...) {
		if slices.Contains(p.chosen, c.name) {
			names = append(names, c.name)
		}
	}
	return names
}

// A named turn is a turn with the name of its figures.
type named struct {
	metric string
	turn   turn
}

func (p plan) hot(r *results) {
	p.takeTurns(r, setup{Keys: 1, Limit: plenty, Per: time.Hour}, request{Do: "fill", To: 1},
		named{"hot 1", turn{Cores: 1, Goroutines: 1}},
		named{"hot 2", turn{Cores: 2, Goroutines: 1}},
		named{"herd 1", turn{Cores: 1, Goroutines: 64}},
		named{"herd 2", turn{Cores: 2, Goroutines: 64}})
}

func (p plan) refused(r *results) {
	p.takeTurns(r, setup{Keys: 1, Limit: 1000, Per: 24 * time.Hour}, request{Do: "spend"},
		named{"refused 1", turn{Cores: 1, Goroutines: 1, Refused: true}},
		named{"refused 2", turn{Cores: 2, Goroutines: 1, Refused: true}})
}

func (p plan) million(r *results) {
	const keys = 1_000_000
	p.takeTurns(r, setup{Keys: keys, Start: keys, Limit: plenty, Per: 24 * time.Hour}, request{Do: "fill", To: keys},
		named{"million 1", turn{Cores: 1, Goroutines: 1, Random: true}},
		named{"million 2", turn{Cores: 2, Goroutines: 1, Random: true}})
}

// takeTurns starts all contestants, fills their stores, and runs their turns, with another
// contestant first each time.
func (p plan) takeTurns(r *results, s setup, prepare request, turns ...named) {
	for round := range p.rounds {
		processes := p.startAll(r, s, prepare)
		for i := range p.turns {
			for _, t := range turns {
				t.turn.For = p.length
				for j := range processes {
					one := processes[(j+i+round)%len(processes)]
					figures, err := one.ask(request{Do: "turn", Turn: t.turn})
					r.take(t.metric, one.name, figures, err)
				}
			}
		}
		for _, one := range processes {
			one.stop()
		}
	}
}

// startAll starts a process for each contestant, with a filled store. A contestant that fails to
// start is reported and left out.
func (p plan) startAll(r *results, s setup, prepare request) (all []*process) {
	for _, name := range p.of(contestants(), ourselves()) {
		s.File = p.places.file(name)
		one, err := startWith(name, s)
		if err != nil {
			r.take(prepare.Do, name, nil, err)
			continue
		}
		if _, err := one.ask(prepare); err != nil {
			r.take(prepare.Do, name, nil, err)
			one.stop()
			continue
		}
		all = append(all, one)
	}
	return all
}

// once runs some requests in a new process for each contestant, in every round. These take long, so
// there are half as many rounds.
func (p plan) once(r *results, metric string, names []string, s setup, requests ...request) {
	for range (p.rounds + 1) / 2 {
		for _, name := range names {
			s.File = p.places.file(name)
			one, err := startWith(name, s)
			if err != nil {
				r.take(metric, name, nil, err)
				continue
			}
			for _, q := range requests {
				figures, err := one.ask(q)
				r.take(metric, name, figures, err)
			}
			one.stop()
			p.places.file(name)
		}
	}
}

func (p plan) memory(r *results) {
	for _, keys := range slices.Compact([]int{1_000_000, p.many}) {
		s := setup{Keys: keys, Limit: plenty, Per: 24 * time.Hour}
		p.once(r, "memory "+millions(keys), p.of(contestants()), s, request{Do: "memory", To: keys}, request{Do: "collect"})
	}
}

func (p plan) expire(r *results) {
	const per = 6 * time.Second
	live, length := ending(p.many), 5*per/2
	s := setup{Keys: live + warmKeys + int(length/newcomer), Start: live, Limit: plenty, Per: per}
	p.once(r, "expire", p.of(contestants(), ourselves()[1:]), s, request{Do: "expire", For: length})
	p.once(r, "expire own", p.of(contestants()[:2], ourselves()[1:]), s, request{Do: "expire", For: length, Own: true})
}

func (p plan) grow(r *results) {
	s := setup{Keys: p.many, Start: warmKeys, Limit: plenty, Per: 24 * time.Hour}
	p.once(r, "grow", p.of(contestants(), ourselves()[1:]), s, request{Do: "grow", From: warmKeys, To: p.many})
	p.once(r, "grow own", p.of(contestants()[:2], ourselves()[1:]), s, request{Do: "grow", From: warmKeys, To: p.many, Own: true})
}

func (p plan) reopen(r *results) {
	s := setup{Keys: p.many, Limit: 1, Per: 24 * time.Hour}
	for range p.rounds {
		for _, name := range p.of(ourselves()[1:]) {
			s.File = p.places.file(name)
			figures, err := kill(name, s)
			r.take("reopen", name, figures, err)
		}
	}
}

// ending returns how many windows end together.
func ending(many int) int { return min(2_000_000, many) }

func millions(n int) string { return fmt.Sprintf("%dM", n/1_000_000) }
