package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// bareScript is the shortest possible limiter: it counts what it refuses, and knows no time of day.
const bareScript = `local n=redis.call('INCR',KEYS[1]) if n==1 then redis.call('EXPIRE',KEYS[1],ARGV[1]) end return {n,redis.call('PTTL',KEYS[1])}`

// correctScript charges one unit to one window with Weir's guarantees, and nothing else: a refusal
// is not counted, the window opens with its first unit and ends at a whole second of the server's
// clock, and the answer contains that second and the time. Everything is in one integer, as in
// redisstore/take.lua (count + reset * 2^31, the reset modulo 2^22), and in the key's time to live,
// so that an open window costs two calls.
const correctScript = `local v,p=redis.call('INCR',KEYS[1]),redis.call('PTTL',KEYS[1]) ` +
	`if p<1 then local t=redis.call('TIME') local r=t[1]+ARGV[2] ` +
	`v,p=r%4194304*2147483648+1,ARGV[2]*1000-math.floor(t[2]/1000) redis.call('SET',KEYS[1],v,'EXAT',r) ` +
	`elseif v%2147483648>ARGV[1]+0 then redis.call('DECR',KEYS[1]) end return {v,p}`

// openRueidis connects with rueidis's defaults, with which Weir is compared.
func openRueidis(s setup) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Server.address}})
}

// A script runs on rueidis.
type script struct {
	client rueidis.Client
	sha    string
	prefix string // separates its counts from the others'
	args   []string
	limit  int64
}

func openScript(s setup, prefix, text string, args ...string) (limiter, error) {
	client, err := openRueidis(s)
	if err != nil {
		return nil, err
	}
	sha, err := client.Do(context.Background(), client.B().ScriptLoad().Script(text).Build()).ToString()
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("load the script: %w", err)
	}
	return script{client: client, sha: sha, prefix: prefix, args: args, limit: s.Limit}, nil
}

func openBareScript(s setup) (limiter, error) {
	return openScript(s, "bare:", bareScript, seconds(s.Per))
}

func openCorrectScript(s setup) (limiter, error) {
	return openScript(s, "best:", correctScript, strconv.FormatInt(s.Limit, 10), seconds(s.Per))
}

func (s script) worker() func(context.Context, string) (bool, error) {
	return func(ctx context.Context, key string) (bool, error) {
		c := s.client.B().Evalsha().Sha1(s.sha).Numkeys(1).Key(s.prefix + key).Arg(s.args...).Build()
		answer, err := s.client.Do(ctx, c).ToArray()
		if err != nil {
			return false, err
		}
		if len(answer) != 2 {
			return false, fmt.Errorf("the script answered %d numbers, not 2", len(answer))
		}
		v, err := answer[0].AsInt64()
		if err != nil {
			return false, err
		}
		left, err := answer[1].AsInt64()
		return v%(1<<31) <= s.limit && left > 0, err
	}
}

func (s script) close() error { s.client.Close(); return nil }

type incr struct{ client rueidis.Client }

func openIncr(s setup) (limiter, error) {
	client, err := openRueidis(s)
	return incr{client}, err
}

func (i incr) worker() func(context.Context, string) (bool, error) {
	return func(ctx context.Context, key string) (bool, error) {
		n, err := i.client.Do(ctx, i.client.B().Incr().Key("incr:"+key).Build()).AsInt64()
		return n > 0, err
	}
}

func (i incr) close() error { i.client.Close(); return nil }

// openGoRedis connects with go-redis's defaults, except for the number of connections.
func openGoRedis(s setup) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Server.address, PoolSize: s.Pool})
}

type goRedisIncr struct{ client *redis.Client }

func openGoRedisIncr(s setup) (limiter, error) { return goRedisIncr{openGoRedis(s)}, nil }

func (i goRedisIncr) worker() func(context.Context, string) (bool, error) {
	return func(ctx context.Context, key string) (bool, error) {
		n, err := i.client.Incr(ctx, "more:"+key).Result()
		return n > 0, err
	}
}

func (i goRedisIncr) close() error { return i.client.Close() }

func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
