package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"
)

// A rate is kept if p99 stays below keptP99, by the times from when requests were due.
const keptP99 = 10 * time.Millisecond

// The load is late if more than lateShare of its sends and reads come more than lateAfter after
// their time, or if its core has less than a twentieth left. Both are small beside keptP99.
const (
	lateAfter = 2 * time.Millisecond
	lateShare = 0.01
	loadLimit = 0.95
)

// A trial is a load at one rate, and what came of it.
type trial struct {
	rate    float64         // requests a second
	sent    int             // requests
	took    []time.Duration // of each answer that counts, from when its request was due
	stopped bool            // early, because more than a hundredth of all took longer than keptP99
	delays  punctuality
	busy    float64 // the part of the load's core that the load and the upstream used
	cpu     float64 // microseconds of the server, for each request
	core    float64 // percent of the server's core that it used
}

// A punctuality counts how often the load itself was late.
type punctuality struct {
	events, late int
}

// note counts a send or a read that was done some time after it could have been done.
func (p *punctuality) note(after time.Duration) {
	p.events++
	if after > lateAfter {
		p.late++
	}
}

// share returns the part of all events that were late.
func (p *punctuality) share() float64 {
	return float64(p.late) / float64(max(1, p.events))
}

// dueAt returns when the request with a number, from 0, is due.
func dueAt(number int, rate float64) time.Duration {
	return time.Duration(float64(number) / rate * float64(time.Second))
}

// p99 returns the time within which 99 of 100 requests were answered, and sorts them. Without any
// answer that is the longest time there is.
func (t *trial) p99() time.Duration {
	if len(t.took) == 0 {
		return math.MaxInt64
	}
	slices.Sort(t.took)
	return t.took[len(t.took)*99/100]
}

// A verdict is what a trial has shown of its rate.
type verdict int

const (
	kept   verdict = iota
	missed         // the server did not keep it
	void           // it was not kept, and the load may be the reason
)

// verdict judges a trial. A load that was late makes times longer and never shorter, so what was
// kept anyway is kept.
func (t *trial) verdict() verdict {
	switch {
	case !t.stopped && t.p99() < keptP99:
		return kept
	case t.delays.share() > lateShare || t.busy > loadLimit:
		return void
	}
	return missed
}

// errVoid is the reason for a figure that is none.
var errVoid = errors.New("void: the load was late itself")

// The search for a rate ends when the highest rate that was kept and the lowest that was not differ
// by less than rateStep. It looks between the bounds lowestRate and mostRate.
const (
	rateStep   = 1.02
	lowestRate = 100
	mostRate   = 2_000_000
)

// highestRate returns the highest rate that is kept. It begins at first and moves by the factor
// step until it knows a rate that is kept and one that is not; then it halves the distance. If the
// load is late at a rate each time, there is no figure, and the error is errVoid.
func highestRate(first, step float64, try func(rate float64) (verdict, error)) (float64, error) {
	low, high := 0.0, 0.0 // kept, not kept; 0: unknown
	for rate := first; ; {
		found, err := tryAgain(rate, try)
		switch {
		case err != nil:
			return 0, err
		case found == void:
			return 0, fmt.Errorf("%w at %.0f requests a second, after %.0f were kept", errVoid, rate, low)
		case found == kept:
			low = rate
		default:
			high = rate
		}
		switch {
		case high == 0:
			rate = low * step
		case low == 0:
			rate = high / step
		case high/low < rateStep:
			return low, nil
		default:
			rate = math.Sqrt(low * high)
		}
		if rate = min(max(rate, lowestRate), mostRate); rate == low || rate == high {
			return 0, fmt.Errorf("look for the highest rate: it is not between %d and %d requests a second", lowestRate, mostRate)
		}
	}
}

// mostTrials is how often a rate is tried until there is a verdict.
const mostTrials = 5

// tryAgain tries a rate. Other programs may disturb a trial: so a rate counts as not kept when that
// has happened twice, and a trial that is void is repeated.
func tryAgain(rate float64, try func(rate float64) (verdict, error)) (verdict, error) {
	worst := void
	for range mostTrials {
		found, err := try(rate)
		if err != nil || found == kept || found == missed && worst == missed {
			return found, err
		}
		worst = min(worst, found)
	}
	return worst, nil
}

// The first search begins at firstRate, later ones at what the one before has found.
const (
	firstRate = 8_000
	firstStep = 2
	laterStep = 1.1
)

// keptRate measures the highest rate at which the server's p99 is below keptP99.
func keptRate(ctx context.Context, w *world, s *server, how protocol, length time.Duration) (figures, error) {
	how.trust = w.cert
	l, err := openLoad(s.address, how)
	if err != nil {
		return nil, err
	}
	defer l.close()
	var best, late trial
	first, step := s.kept, laterStep
	if first == 0 {
		first, step = firstRate, firstStep
	}
	rate, err := highestRate(first, step, func(rate float64) (verdict, error) {
		t, err := l.attempt(ctx, w, s, rate, length)
		if err != nil {
			return missed, err
		}
		found := t.verdict()
		switch {
		case found == kept && t.rate > best.rate:
			best = t
		case found == void:
			late = t
		}
		return found, nil
	})
	if errors.Is(err, errVoid) {
		return nil, fmt.Errorf("%w; %.2g %% of its sends and reads were late, and its core was used for %.0f %%", err, 100*late.delays.share(), 100*late.busy)
	}
	if err != nil {
		return nil, err
	}
	s.kept = rate
	return figures{keptFigure: rate, cpuFigure: best.cpu, busyFigure: best.core, p99Figure: best.p99().Seconds() * 1e3}, nil
}

// attempt makes a trial, and adds what the kernel reports of it.
func (l *load) attempt(ctx context.Context, w *world, s *server, rate float64, length time.Duration) (trial, error) {
	pids := []int{s.pid, os.Getpid(), w.smallPid}
	before, err := cpuTimes(pids)
	if err != nil {
		return trial{}, err
	}
	begun := time.Now()
	t, err := l.drive(ctx, rate, length, keptP99)
	s.forget()
	if err != nil {
		return trial{}, fmt.Errorf("%.0f requests a second: %w", rate, err)
	}
	took := time.Since(begun)
	after, err := cpuTimes(pids)
	if err != nil {
		return trial{}, err
	}
	served := after[0] - before[0]
	t.busy = (after[1] - before[1] + after[2] - before[2]).Seconds() / took.Seconds()
	t.cpu = served.Seconds() * 1e6 / float64(max(1, t.sent))
	t.core = 100 * served.Seconds() / took.Seconds()
	return t, nil
}

// cpuTimes returns the processor time of each process.
func cpuTimes(pids []int) (times []time.Duration, err error) {
	for _, pid := range pids {
		t, err := cpuTime(pid)
		if err != nil {
			return nil, err
		}
		times = append(times, t)
	}
	return times, nil
}
