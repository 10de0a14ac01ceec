package main

import (
	"context"
	"slices"
	"time"
)

// A contestant is one way of deciding, through the server, whether a key may have one unit more.
type contestant struct {
	name string
	// note says what it does less than is needed, or how it was set up.
	note string
	// pooled says that each command has a connection to itself until it is answered, so that the size of the pool matters:
	// a few sizes are tried beforehand, and the best is used.
	pooled bool
	// counts is false for what is no limiter and refuses nothing.
	counts bool
	open   func(setup) (limiter, error)
}

// A setup is what a case asks of a contestant: windows of Per in which each key has Limit units.
type setup struct {
	Server *server
	Limit  int64
	Per    time.Duration
	Pool   int // connections, for those that have a pool
}

// A limiter decides. Each goroutine has a worker of its own.
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
	rateName     = "go-redis/redis_rate"
	throttleName = "throttled"
	ululeName    = "ulule/limiter"
	rueidisName  = "rueidislimiter"
	httprateName = "httprate-redis, without its lock"
	shippedName  = "httprate-redis, as shipped"
)

// contestants in the order in which they are shown.
func contestants() []contestant {
	return []contestant{
		{name: bareName, counts: true, open: openBareScript, note: "INCR, EXPIRE for the first, PTTL: it counts refusals and tells no time"},
		{name: correctName, counts: true, open: openCorrectScript, note: "one unit, one window: what is refused is taken back, and the reset and the time are told"},
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

// twoWindows are Weir's charges of two windows at a time; they are compared with one.
func twoWindows() []contestant {
	return []contestant{
		{name: twoTakeName, counts: true, open: openTwoTake},
		{name: twoName, counts: true, open: openTwoDecide},
	}
}

// ofOne returns who charges one window where c charges two.
func ofOne(c contestant) string {
	if c.name == twoTakeName {
		return takeName
	}
	return decideName
}

func named(all []contestant, names ...string) (found []contestant) {
	for _, c := range all {
		if slices.Contains(names, c.name) {
			found = append(found, c)
		}
	}
	return found
}
