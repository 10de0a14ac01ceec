package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A turn is one measurement of the time of a decision: all goroutines on one key, or on random
// keys.
type turn struct {
	Cores      int  // GOMAXPROCS
	Goroutines int  // for each core
	Random     bool // random keys of the setup; otherwise one key
	Refused    bool // what every decision must be
	For        time.Duration
}

// turn measures, after a warm-up of a quarter of the time, because others have used the caches.
func (c *child) turn(t turn, figures map[string]float64) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(t.Cores))
	if _, _, _, err := c.load(t, t.For/4); err != nil {
		return err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	took, n, wrong, err := c.load(t, t.For)
	if err != nil {
		return err
	}
	runtime.ReadMemStats(&after)
	figures["ns"] = float64(took) / float64(n)
	figures["wrong"] = 100 * float64(wrong) / float64(n)
	figures["allocations"] = float64(after.Mallocs-before.Mallocs) / float64(n)
	return nil
}

// load decides from all goroutines for the given time, and returns how long that took, how many
// decisions it made, and how many of them were wrong.
func (c *child) load(t turn, length time.Duration) (took time.Duration, decisions, wrong int64, err error) {
	goroutines := t.Cores * t.Goroutines
	var made, allowed atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	start := time.Now()
	timer := time.AfterFunc(length, func() { stop.Store(true) })
	defer timer.Stop()
	for i := range goroutines {
		l := loader{take: c.store.worker(), key: newKey(0), random: newRandom(i), stop: &stop}
		wg.Go(func() {
			if t.Random {
				l.many(uint64(c.setup.Keys))
			} else {
				l.one()
			}
			made.Add(l.made)
			allowed.Add(l.allowed)
		})
	}
	wg.Wait()
	took = time.Since(start)
	wrong = allowed.Load()
	if !t.Refused {
		wrong = made.Load() - wrong
	}
	// a few are inherent: a contestant that refills admits one now and then
	if wrong > made.Load()/10 {
		return 0, 0, 0, fmt.Errorf("%d of %d decisions were wrong", wrong, made.Load())
	}
	return took, made.Load(), wrong, nil
}

// A loader is one goroutine of a turn.
type loader struct {
	take          func([]byte) bool
	key           *key
	random        random
	stop          *atomic.Bool
	made, allowed int64
}

// batch is the number of decisions between two checks for the end of the turn.
const batch = 64

func (l *loader) one() {
	for !l.stop.Load() {
		for range batch {
			if l.take(l.key[:]) {
				l.allowed++
			}
		}
		l.made += batch
	}
}

func (l *loader) many(keys uint64) {
	for !l.stop.Load() {
		for range batch {
			l.key.set(l.random.below(keys))
			if l.take(l.key[:]) {
				l.allowed++
			}
		}
		l.made += batch
	}
}
