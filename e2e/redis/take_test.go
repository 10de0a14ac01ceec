package redis_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// charge returns a charge of cost units to a window that is named by its length and
// counted by who.
func charge(who string, limit, per, cost int64) weir.Charge {
	c := weir.Charge{Limit: limit, Per: per, Cost: cost}
	c.Key = binary.BigEndian.AppendUint32([]byte("\x04test"), uint32(per))
	c.Scope = len(c.Key)
	c.Key = append(c.Key, byte(len(who)))
	c.Key = append(c.Key, who...)
	c.Subject = len(c.Key)
	return c
}

func take(t testing.TB, s *redisstore.Store, charges ...weir.Charge) weir.Receipt {
	t.Helper()
	var r weir.Receipt
	if err := s.Take(context.Background(), charges, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// Nodes on one server share one budget exactly (D3).
func TestNodesShareOneBudgetExactly(t *testing.T) {
	const nodes, callers, each, limit = 4, 16, 100, 1000
	server := redistest.Start(t)
	var stores [nodes]*redisstore.Store
	for i := range stores {
		stores[i] = open(t, redisstore.Options{Addresses: []string{server.Addr()}})
	}
	var admitted atomic.Int64
	var done sync.WaitGroup
	for i := range nodes * callers {
		done.Go(func() {
			for range each {
				var r weir.Receipt
				if err := stores[i%nodes].Take(context.Background(), []weir.Charge{charge("a", limit, 3600, 1), charge("a", limit+1, 86400, 1)}, &r); err != nil {
					t.Error(err)
					return
				}
				if r.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	done.Wait()
	if n := admitted.Load(); n != limit {
		t.Errorf("%d of %d takes were admitted, the limit is %d", n, nodes*callers*each, limit)
	}
	r := take(t, stores[0], charge("a", limit, 3600, 0), charge("a", limit+1, 86400, 0))
	if r.Used[0].Count != limit || r.Used[1].Count != limit {
		t.Errorf("the windows have %d and %d, want %d", r.Used[0].Count, r.Used[1].Count, limit)
	}
}

// Every key expires at its window's reset, which later takes do not move (D18). No
// key contains the caller's name.
func TestEveryKeyExpiresWhenItsWindowEnds(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, redisstore.Options{Addresses: []string{server.Addr()}, Prefix: "shop"})
	resets := map[int64]bool{}
	for range 3 {
		for i := range int64(20) {
			r := take(t, s, charge(fmt.Sprint("visitor-", i), 2, 60+i, 1), charge(fmt.Sprint("visitor-", i), 1, 3600+i, 0))
			resets[r.Used[0].Reset] = true
		}
		take(t, s, charge("two", 9, 60, 2), charge("two", 9, 3600, 2))
	}
	form := regexp.MustCompile(`^shop:(secret|marker|\{[A-Za-z0-9_-]{4}\}[A-Za-z0-9_-]{16})$`)
	keys, err := server.Try("KEYS", "*").AsStrSlice()
	keys = slices.DeleteFunc(keys, func(key string) bool {
		return strings.HasPrefix(key, "shop:{trial}") // by which the store was tried a moment ago
	})
	if err != nil || len(keys) != 20+2+2 {
		t.Fatalf("%d keys, want 24: %v %v", len(keys), keys, err)
	}
	for _, key := range keys {
		if !form.MatchString(key) {
			t.Errorf("key %q contains more than a hash", key)
		}
		left, err := server.Try("TTL", key).AsInt64()
		if err != nil || left <= 0 || left > 3600 && key != "shop:secret" && key != "shop:marker" {
			t.Errorf("key %s expires in %d s (%v)", key, left, err)
		}
		if key == "shop:secret" || key == "shop:marker" {
			continue
		}
		at, _ := server.Try("EXPIRETIME", key).AsInt64()
		text, _ := server.Try("GET", key).ToString()
		value, err := strconv.ParseInt(text, 10, 64)
		if err != nil || value>>31 != at%(1<<22-1) {
			t.Errorf("key %s, %q: the window ends at %d mod 2^22-1, the key at %d", key, text, value>>31, at)
		}
	}
}

// An exhausted window is refused without a round trip, except for one each second.
func TestARefusalIsRemembered(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, redisstore.Options{Addresses: []string{server.Addr()}})
	in := []weir.Charge{charge("a", 3, 3600, 1), charge("a", 30, 7200, 1)}
	for range 3 {
		take(t, s, in...)
	}
	first := take(t, s, in...)
	before := server.Commands(t)
	for range 10_000 {
		r := take(t, s, in...)
		if r.Allowed || r.Used[0] != first.Used[0] || r.Used[1] != first.Used[1] || r.Now < first.Now {
			t.Fatalf("a spent window answers %+v, at first %+v", r, first)
		}
	}
	stats := s.Stats()
	if asked := server.Commands(t) - before; asked > 5 || stats.Remembered < 9_990 {
		t.Errorf("10,000 refusals asked the server %d times, and %d were remembered", asked, stats.Remembered)
	}
}
