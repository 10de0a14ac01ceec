package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-chi/httprate"
	httprateredis "github.com/go-chi/httprate-redis"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislimiter"
	"github.com/throttled/throttled/v2"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ululelimiter "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

// Each peer is set up as its documentation shows, and called at its closest equivalent of
// weir.Store: one key, one unit, without HTTP.

// rueidislimiter: Allow, with rueidis's defaults.
type rueidisLimiter struct {
	client  rueidis.Client
	limiter rueidislimiter.RateLimiterClient
}

func openRueidisLimiter(s setup) (limiter, error) {
	client, err := openRueidis(s)
	if err != nil {
		return nil, err
	}
	l, err := rueidislimiter.NewRateLimiter(rueidislimiter.RateLimiterOption{
		// it has no Close
		ClientBuilder: func(rueidis.ClientOption) (rueidis.Client, error) { return client, nil },
		KeyPrefix:     "rueidislimiter", Limit: int(s.Limit), Window: s.Per,
	})
	return rueidisLimiter{client, l}, err
}

func (l rueidisLimiter) worker() func(context.Context, string) (bool, error) {
	return func(ctx context.Context, key string) (bool, error) {
		r, err := l.limiter.Allow(ctx, key)
		return r.Allowed, err
	}
}

func (l rueidisLimiter) close() error { l.client.Close(); return nil }

// ulule/limiter: Limiter.Get on its Redis store.
type ulule struct {
	client  *redis.Client
	limiter *ululelimiter.Limiter
}

func openUlule(s setup) (limiter, error) {
	client := openGoRedis(s)
	store, err := ululeredis.NewStore(client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return ulule{client, ululelimiter.New(store, ululelimiter.Rate{Period: s.Per, Limit: s.Limit})}, nil
}

func (l ulule) worker() func(context.Context, string) (bool, error) {
	return func(ctx context.Context, key string) (bool, error) {
		c, err := l.limiter.Get(ctx, key)
		return !c.Reached, err
	}
}

func (l ulule) close() error { return l.client.Close() }

// redis_rate: Allow. It has no fixed windows: a limit becomes a rate with a burst of the same size.
type redisRate struct {
	client  *redis.Client
	limiter *redis_rate.Limiter
	limit   redis_rate.Limit
}

func openRedisRate(s setup) (limiter, error) {
	client := openGoRedis(s)
	return redisRate{client, redis_rate.NewLimiter(client), redis_rate.Limit{Rate: int(s.Limit), Burst: int(s.Limit), Period: s.Per}}, nil
}

func (l redisRate) worker() func(context.Context, string) (bool, error) {
	return func(ctx context.Context, key string) (bool, error) {
		r, err := l.limiter.Allow(ctx, key, l.limit)
		if err != nil {
			return false, err
		}
		return r.Allowed > 0, nil
	}
}

func (l redisRate) close() error { return l.client.Close() }

// throttled: GCRA on its store for go-redis, also with the limit as rate and as burst.
type throttledLimiter struct {
	client  *redis.Client
	limiter *throttled.GCRARateLimiterCtx
}

func openThrottled(s setup) (limiter, error) {
	client := openGoRedis(s)
	store, err := goredisstore.NewCtx(client, "throttled:")
	if err != nil {
		return nil, err
	}
	interval := max(1, s.Per/time.Duration(s.Limit))
	quota := throttled.RateQuota{MaxRate: throttled.PerDuration(1, interval), MaxBurst: int(s.Limit) - 1}
	l, err := throttled.NewGCRARateLimiterCtx(store, quota)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return throttledLimiter{client, l}, nil
}

func (l throttledLimiter) worker() func(context.Context, string) (bool, error) {
	return func(ctx context.Context, key string) (bool, error) {
		limited, _, err := l.limiter.RateLimitCtx(ctx, key, 1)
		return !limited, err
	}
}

func (l throttledLimiter) close() error { return l.client.Close() }

// httprate-redis: its counter with httprate's sum around it (RateLimiter.OnLimit), but without the
// lock that makes it decide one at a time, and so without its exactness.
type httprateCounter struct {
	client  *redis.Client
	counter httprate.LimitCounter
	limit   int
	per     time.Duration
}

func openHttprate(s setup) (limiter, error) {
	client := openGoRedis(s)
	counter := httprateredis.NewCounter(&httprateredis.Config{Client: client, FallbackDisabled: true, WindowLength: s.Per})
	counter.Config(int(s.Limit), s.Per)
	return httprateCounter{client, counter, int(s.Limit), s.Per}, nil
}

func (l httprateCounter) worker() func(context.Context, string) (bool, error) {
	return func(_ context.Context, key string) (bool, error) {
		now := time.Now().UTC()
		window := now.Truncate(l.per)
		current, previous, err := l.counter.Get(key, window, window.Add(-l.per))
		if err != nil {
			return false, err
		}
		elapsed := now.Sub(window)
		sliding := float64(previous)*float64(l.per-elapsed)/float64(l.per) + float64(current)
		if int(math.Round(sliding))+1 > l.limit {
			return false, nil
		}
		return true, l.counter.IncrementBy(key, window, 1)
	}
}

func (l httprateCounter) close() error { return l.client.Close() }

// httprate-redis as in its README, at RateLimiter.OnLimit: below the middleware, with its header
// fields.
type httprateShipped struct {
	limiter  *httprate.RateLimiter
	counter  interface{ Close() error }
	fellBack *atomic.Bool
}

func openHttprateShipped(s setup) (limiter, error) {
	l := httprateShipped{fellBack: new(atomic.Bool)}
	counter := httprateredis.NewCounter(&httprateredis.Config{
		Host: "127.0.0.1", Port: uint16(s.Server.port), WindowLength: s.Per, PrefixKey: "httprate-shipped",
		OnFallbackChange: func(activated bool) { l.fellBack.Store(true) },
	})
	l.counter, l.limiter = counter, httprate.NewRateLimiter(int(s.Limit), s.Per, httprate.WithLimitCounter(counter))
	return l, nil
}

func (l httprateShipped) worker() func(context.Context, string) (bool, error) {
	request, err := http.NewRequest(http.MethodGet, "/", nil)
	answer := fieldsOnly{header: http.Header{}}
	return func(_ context.Context, key string) (bool, error) {
		if err != nil {
			return false, err
		}
		refused := l.limiter.OnLimit(answer, request, key)
		if l.fellBack.Load() {
			return false, fmt.Errorf("it fell back to counting locally")
		}
		return !refused, nil
	}
}

func (l httprateShipped) close() error { return l.counter.Close() }

// A fieldsOnly is a ResponseWriter that only keeps header fields.
type fieldsOnly struct{ header http.Header }

func (n fieldsOnly) Header() http.Header { return n.header }

func (n fieldsOnly) Write(b []byte) (int, error) { return len(b), nil }

func (n fieldsOnly) WriteHeader(int) {}
