package main

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	golimiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	throttledmem "github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ululemem "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

// Each peer is called at its closest equivalent of weir.Store: one key, one unit, in this process,
// without HTTP. If it has options it gets the fastest one.

// sethvargo/go-limiter: Store.Take. It starts with room for every key, which saves growing, except
// if growing is measured. It sweeps each Per, and drops what was idle for Per; its own defaults are
// 6 and 12 hours. Its clock is its own: one reading of the wall clock.
type sethvargo struct{ limiter golimiter.Store }

func openSethvargo(s setup) (store, error) {
	l, err := memorystore.New(&memorystore.Config{
		Tokens: uint64(s.Limit), Interval: s.Per,
		SweepInterval: s.Per, SweepMinTTL: s.Per,
		InitialAlloc: s.Start,
	})
	if err != nil {
		return nil, err
	}
	return sethvargo{l}, nil
}

func (s sethvargo) worker() func([]byte) bool {
	ctx := context.Background()
	return func(key []byte) bool {
		_, _, _, ok, _ := s.limiter.Take(ctx, asText(key))
		return ok
	}
}

func (s sethvargo) close() error { return s.limiter.Close(context.Background()) }

// throttled: GCRA over its unbounded memory store, which is the faster one (the other is an LRU
// behind one lock), with our clock. It has no fixed windows: a limit becomes a rate with a burst of
// the same size. If it gives up (after ten lost races) that counts as a refusal.
type throttledStore struct{ limiter *throttled.GCRARateLimiterCtx }

func openThrottled(s setup) (store, error) {
	m, err := throttledmem.New(0)
	if err != nil {
		return nil, err
	}
	m.SetTimeNow(newClock().time)
	// at a limit that is never reached, one unit a nanosecond
	interval := max(1, s.Per/time.Duration(s.Limit))
	quota := throttled.RateQuota{MaxRate: throttled.PerDuration(1, interval), MaxBurst: int(s.Limit) - 1}
	l, err := throttled.NewGCRARateLimiterCtx(throttled.WrapStoreWithContext(m), quota)
	if err != nil {
		return nil, err
	}
	return throttledStore{l}, nil
}

func (s throttledStore) worker() func([]byte) bool {
	ctx := context.Background()
	return func(key []byte) bool {
		limited, _, err := s.limiter.RateLimitCtx(ctx, asText(key), 1)
		return err == nil && !limited
	}
}

func (s throttledStore) close() error { return nil }

// httprate: its RateLimiter only answers HTTP requests, so it is measured at the counter below,
// with the limiter's own sliding arithmetic and lock around it (OnLimit), but with one reading of
// our clock instead of its two, and without header fields. It keeps 64-bit hashes without a key:
// two keys that collide share their count.
type httprateStore struct {
	mu      sync.Mutex
	counter httprate.LimitCounter
	clock   clock
	limit   int
	per     time.Duration
}

func openHttprate(s setup) (store, error) {
	c := httprate.NewLocalLimitCounter(s.Per)
	c.Config(int(s.Limit), s.Per)
	return &httprateStore{counter: c, clock: newClock(), limit: int(s.Limit), per: s.Per}, nil
}

func (s *httprateStore) worker() func([]byte) bool {
	return func(key []byte) bool { return s.take(asText(key)) }
}

func (s *httprateStore) take(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.time().UTC()
	window := now.Truncate(s.per)
	current, previous, err := s.counter.Get(key, window, window.Add(-s.per))
	if err != nil {
		return false
	}
	elapsed := now.Sub(window)
	sliding := float64(previous)*float64(s.per-elapsed)/float64(s.per) + float64(current)
	if int(math.Round(sliding))+1 > s.limit {
		return false
	}
	return s.counter.IncrementBy(key, window, 1) == nil
}

func (s *httprateStore) close() error { return nil }

// ulule/limiter: Limiter.Get, with a cleanup each Per (its default is 30 seconds). Its clock is its
// own.
type ulule struct{ limiter *limiter.Limiter }

func openUlule(s setup) (store, error) {
	m := ululemem.NewStoreWithOptions(limiter.StoreOptions{Prefix: "l", CleanUpInterval: s.Per})
	return ulule{limiter.New(m, limiter.Rate{Period: s.Per, Limit: s.Limit})}, nil
}

func (s ulule) worker() func([]byte) bool {
	ctx := context.Background()
	return func(key []byte) bool {
		c, err := s.limiter.Get(ctx, asText(key))
		return err == nil && !c.Reached
	}
}

func (s ulule) close() error { return nil }

// tollbooth: Limiter.LimitReached, below its joining of keys and its HTTP errors. A bucket is
// dropped Per after it was made. Its clock is its own.
type toll struct{ limiter *tollboothlimiter.Limiter }

func openTollbooth(s setup) (store, error) {
	perSecond := max(float64(s.Limit)/s.Per.Seconds(), 1e-9)
	l := tollbooth.NewLimiter(perSecond, &tollboothlimiter.ExpirableOptions{DefaultExpirationTTL: s.Per})
	l.SetBurst(int(s.Limit)).SetTokenBucketExpirationTTL(s.Per)
	return toll{l}, nil
}

func (s toll) worker() func([]byte) bool {
	return func(key []byte) bool { return !s.limiter.LimitReached(asText(key)) }
}

func (s toll) close() error { return nil }

// golang.org/x/time/rate: a Limiter for each key in a sync.Map, with our clock, created only if the
// load finds none. Nothing drops a key.
type rates struct {
	limiters sync.Map
	clock    clock
	rate     rate.Limit
	burst    int
}

func openRate(s setup) (store, error) {
	return &rates{clock: newClock(), rate: rate.Limit(float64(s.Limit) / s.Per.Seconds()), burst: int(s.Limit)}, nil
}

func (s *rates) worker() func([]byte) bool {
	return func(key []byte) bool {
		v, ok := s.limiters.Load(asText(key))
		if !ok {
			v, _ = s.limiters.LoadOrStore(asText(key), rate.NewLimiter(s.rate, s.burst))
		}
		return v.(*rate.Limiter).AllowN(s.clock.time(), 1)
	}
}

func (s *rates) close() error { return nil }
