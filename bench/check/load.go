package main

import (
	"errors"
	"time"

	"github.com/weirlimit/weir/bench/servers"
)

// figures are the result of one turn.
type figures struct {
	rate  float64 // requests a second
	cpu   float64 // of all servers, microseconds a request
	asked float64 // of what nginx asks, microseconds a request
}

const callers = 32

// turn asks for a while, and for an eighth of that before without counting.
func (c contestant) turn(length time.Duration) (figures, error) {
	if _, err := servers.Ask(c.at, callers, length/8); err != nil {
		return figures{}, err
	}
	before, err := c.cpu()
	if err != nil {
		return figures{}, err
	}
	start := time.Now()
	n, err := servers.Ask(c.at, callers, length)
	took := time.Since(start)
	after, cpuErr := c.cpu()
	if err := errors.Join(err, cpuErr); err != nil {
		return figures{}, err
	}
	each := func(i int) float64 { return float64((after[i] - before[i]).Microseconds()) / float64(n) }
	return figures{float64(n) / took.Seconds(), each(0), each(1)}, nil
}

// cpu returns the CPU time of all servers, and of what nginx asks.
func (c contestant) cpu() (all [2]time.Duration, err error) {
	all[0], err = servers.CPU(c.pids...)
	if err == nil && c.asks != 0 {
		all[1], err = servers.CPU(c.asks)
	}
	return all, err
}
