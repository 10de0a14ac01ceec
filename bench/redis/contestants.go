package main

import (
	"context"
	"slices"
	"time"
)

// A contestant is one way to decide, through the server, whether a key may have another unit.
type contestant struct {
	name string
	// note describes what it does less than is needed, or how it was set up.
	note string
	// pooled means that each command has a connection to itself until it is answered, so that the
	// size of the pool matters: a few sizes are tried first, and the best is used.
	pooled bool
	// counts is false if it is no limiter and refuses nothing.
	counts bool
	open   func(setup) (limiter, error)
}

// A setup is what a case requires of a contestant: windows of Per in which each key has Limit
// units.
type setup struct {
	Server *server
	Limit  int64
	Per    time.Duration
	Pool   int // connections, for those with a pool
}

// A limiter decides. Each goroutine has its own worker.
type limiter interface {
	worker() func(ctx context.Context, key string) (allowed bool, err error)
	close() error
}

// plenty is a limit that no run reaches.
const plenty = 1<<31 - 1

const (
	bareName     = "bare script, rueidis"
	correctName  = "shortest correct script, rueidis"
	incrName     = "bare INCR, rueidis"
	goredisName  = "bare INCR, go-redis"
	takeName     = "weir, Store.Take"
	decideName   = "weir, Decide"
	twoTakeName  = "weir, Store.Take, two windows"
	twoName      = "weir, Decide, two windows"
	settledName  = "weir, Store.Take, settled"
	rateName     = "go-redis/redis_rate"
	throttleName = "throttled"
	ululeName    = "ulule/limiter"
	rueidisName  = "rueidislimiter"
	httprateName = "httprate-redis, without its lock"
	shippedName  = "httprate-redis, as shipped"
)

// contestants returns them in the order of the tables.
func contestants() []contestant {
	return []contestant{
		{name: bareName, counts: true, open: openBareScript, note: "INCR, EXPIRE for the first, PTTL: counts refusals; returns no time"},
		{name: correctName, counts: true, open: openCorrectScript, note: "one unit, one window: takes back what is refused; returns the reset and the time"},
		{name: incrName, open: openIncr, note: "no limiter"},
		{name: goredisName, pooled: true, open: openGoRedisIncr, note: "no limiter"},
		{name: takeName, counts: true, open: openTake},
		{name: decideName, counts: true, open: openDecide},
		{name: rueidisName, counts: true, open: openRueidisLimiter, note: "counts refusals; the callers' clocks"},
		{name: ululeName, counts: true, pooled: true, open: openUlule, note: "counts refusals"},
		{name: rateName, counts: true, pooled: true, open: openRedisRate, note: "GCRA"},
		{name: httprateName, counts: true, pooled: true, open: openHttprate, note: "its counter and sum alone: two trips, so that callers pass each other by"},
		{name: shippedName, counts: true, open: openHttprateShipped, note: "one decision at a time"},
		{name: throttleName, counts: true, pooled: true, open: openThrottled, note: "GCRA; two trips"},
	}
}

// more returns Weir with charges of two windows at a time, and with a settlement after each take.
// They are compared with takes of one window.
func more() []contestant {
	return []contestant{
		{name: twoTakeName, counts: true, open: openTwoTake},
		{name: twoName, counts: true, open: openTwoDecide},
		{name: settledName, open: openSettledTake},
	}
}

// ofOne returns the contestant that c, one of more, is compared with.
func ofOne(c contestant) string {
	if c.name == twoName {
		return decideName
	}
	return takeName
}

func named(all []contestant, names ...string) (found []contestant) {
	for _, c := range all {
		if slices.Contains(names, c.name) {
			found = append(found, c)
		}
	}
	return found
}
