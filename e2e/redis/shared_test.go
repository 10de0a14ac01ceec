package redis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/internal/wait"
	"github.com/weirlimit/weir/redisstore"
)

func at(server *redistest.Server) redisstore.Options {
	return redisstore.Options{Addresses: []string{server.Addr()}}
}

// If a server loses its scripts, they are sent again. Everything is counted
// exactly.
func TestAServerThatForgetsTheScriptsCountsExactly(t *testing.T) {
	t.Parallel()
	const limit = 5000
	server := redistest.Start(t)
	var nodes []*node
	for range 2 {
		nodes = append(nodes, newNode(t, open(t, at(server)), lenient, hourly(limit), daily(2*limit)))
	}
	flushes := 0
	flood(nodes, 16, func() {
		eventually(t, "the limit is reached", func() bool {
			for range 10 {
				server.Do(t, "SCRIPT", "FLUSH")
				flushes++
			}
			return nodes[0].refused[weir.Counted].Load() > 0
		})
	}, "a")
	if n := total(nodes, weir.Counted); n != limit {
		t.Errorf("%d were admitted, the limit is %d", n, limit)
	}
	if n := total(nodes, weir.CountedLocally); n > 0 {
		t.Errorf("%d were counted locally; %+v", n, nodes[0].over.Health())
	}
	for _, c := range counters(t, server) {
		if c.count != limit {
			t.Errorf("%d were admitted, and %+v", limit, c)
		}
	}
	t.Logf("%d flushes", flushes)
}

// After FLUSHALL windows start anew, and every key expires.
func TestAServerThatForgetsEverythingCountsOn(t *testing.T) {
	t.Parallel()
	const limit, flushes = 200, 20
	server := redistest.Start(t)
	nodes := []*node{
		newNode(t, open(t, at(server)), lenient, hourly(limit)),
		newNode(t, open(t, at(server)), lenient, hourly(limit)),
	}
	flood(nodes, 8, func() {
		for range flushes {
			before := nodes[0].allowed[weir.Counted].Load()
			server.Do(t, "FLUSHALL")
			eventually(t, "a new window begins", func() bool { return nodes[0].allowed[weir.Counted].Load() > before })
		}
	}, "a")
	// If the secret was replaced in between, callers have other names than before.
	if n, allowed := total(nodes, weir.Counted), int64(limit*2*(flushes+1)); n > allowed {
		t.Errorf("%d were admitted: more than %d", n, allowed)
	}
	if n := total(nodes, weir.CountedLocally); n > 0 {
		t.Errorf("%d were counted locally", n)
	}
	counters(t, server)
	shareAgain(t, append(nodes, newNode(t, open(t, at(server)), lenient, hourly(limit))), "after", limit)
}

// shareAgain waits until the nodes share one budget exactly.
func shareAgain(t *testing.T, nodes []*node, who string, limit int) {
	t.Helper()
	round, admitted := 0, 0
	eventually(t, "they share one budget", func() bool {
		round++
		admitted = 0
		for i := range limit + 2*len(nodes) {
			if nodes[i%len(nodes)].decide(fmt.Sprint(who, round)).Allowed {
				admitted++
			}
		}
		if admitted < limit {
			t.Fatalf("%d of %d were admitted", admitted, limit)
		}
		return admitted == limit
	})
	t.Logf("they shared one budget in round %d", round)
}

// If a restart has emptied the server, windows start anew, even if a refusal was
// remembered. Later the nodes share them.
func TestARestartThatEmptiedTheServer(t *testing.T) {
	t.Parallel()
	const limit = 5
	server := redistest.Start(t)
	var log lines
	o := at(server)
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	nodes := []*node{
		newNode(t, open(t, o), lenient, hourly(limit)),
		newNode(t, open(t, o), lenient, hourly(limit)),
	}
	eventually(t, "the window is spent", func() bool { return !nodes[0].decide("a").Allowed })
	server.Kill()
	for _, n := range nodes {
		n.until("b", weir.CountedLocally)
		if d := n.decide("a"); d.Allowed && n == nodes[0] {
			t.Errorf("a spent window has room where it is counted locally: %+v", d)
		}
	}
	server.Restart(t)
	for i, n := range nodes {
		n.recovered("b", 1)
		n.until("b", weir.Counted)
		t.Logf("node %d: %+v", i, n.outages())
	}
	eventually(t, "a new window begins after the spent one", func() bool { return nodes[0].decide("a").Allowed })
	eventually(t, "the secret is there again", func() bool {
		n, err := server.Try("EXISTS", "weir:secret").AsInt64()
		return err == nil && n == 1
	})
	shareAgain(t, append(nodes, newNode(t, open(t, o), lenient, hourly(limit))), "c", limit)
	counters(t, server)
}

// Processes that start together agree on the secret that one of them generates
// (D18).
func TestProcessesThatStartTogetherAgreeOnASecret(t *testing.T) {
	t.Parallel()
	const processes = 32
	server := redistest.Start(t)
	var all [processes]*redisstore.Store
	var done sync.WaitGroup
	start := make(chan struct{})
	for i := range all {
		done.Go(func() {
			<-start
			s, err := redisstore.New(context.Background(), at(server))
			if err != nil {
				t.Error(err)
				return
			}
			all[i] = s
			for !s.State().Ready { // on a busy machine it is not at once
				if err := wait.For(t.Context(), time.Millisecond); err != nil {
					t.Error(err)
					return
				}
			}
			var r weir.Receipt
			if err := s.Take(context.Background(), []weir.Charge{charge("a", processes, 3600, 1)}, &r); err != nil || !r.Allowed {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	close(start)
	done.Wait()
	if c := one(t, server); c.count != processes {
		t.Errorf("%d processes took a unit each, and %+v", processes, c)
	}
	for _, s := range all {
		if s != nil {
			s.Close()
		}
	}
}

// Two secrets would mean two budgets, so the second process does not start (D18).
func TestTwoSecretsAreAnError(t *testing.T) {
	t.Parallel()
	one, other := bytes.Repeat([]byte("1"), 32), bytes.Repeat([]byte("2"), 32)
	for _, c := range []struct {
		name          string
		first, second []byte
		want          error
	}{
		{"the same", one, one, nil},
		{"different ones", one, other, redisstore.ErrSecret},
		{"one that is made up, then one that is given", nil, one, redisstore.ErrSecret},
		{"one that is given, then none", one, nil, redisstore.ErrSecret},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := redistest.Start(t)
			o := at(server)
			o.Secret = c.first
			take(t, open(t, o), charge("a", 9, 3600, 1))
			o.Secret = c.second
			s, err := redisstore.New(t.Context(), o)
			if !errors.Is(err, c.want) {
				t.Fatalf("the error is %v, want %v", err, c.want)
			}
			if err == nil {
				defer s.Close()
				if r := take(t, s, charge("a", 9, 3600, 1)); r.Used[0].Count != 2 {
					t.Errorf("two processes took a unit each, and the window is %+v", r.Used[0])
				}
				return
			}
			made, _ := server.Try("GET", "weir:secret").ToString()
			for _, secret := range []string{string(one), string(other), made} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error contains the secret: %v", err)
				}
			}
		})
	}
}

// If waiting cannot cure an error, the start fails; the error's text contains no
// password.
func TestAWrongPasswordIsAnErrorAtTheStart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "right-one")
	for _, c := range []struct{ user, password string }{
		{"", ""}, {"", "wrong-one"}, {"nobody", "right-one"},
	} {
		o := at(server)
		o.Username, o.Password = c.user, c.password
		s, err := redisstore.New(t.Context(), o)
		if s != nil {
			s.Close()
		}
		if !errors.Is(err, redisstore.ErrDenied) || strings.Contains(err.Error(), "-one") {
			t.Errorf("user %q, password %q: %v", c.user, c.password, err)
		}
	}
	server.Do(t, "ACL", "SETUSER", "reader", "on", ">right-one", "~*", "+@all", "-evalsha", "-eval")
	o := at(server)
	o.Username, o.Password = "reader", "right-one"
	if _, err := redisstore.New(t.Context(), o); !errors.Is(err, redisstore.ErrDenied) {
		t.Errorf("a user who may run no script: %v", err)
	}
}

// A foreign value in a counter's key affects only that counter, until the value is
// removed. Everything that Weir writes expires.
func TestAForeignValueAffectsOneCounter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		write   []string // the command; NAME is the counter
		outcome weir.Outcome
		count   int64 // after one more unit, if the outcome is Counted
	}{
		{"a list", []string{"LPUSH", "NAME", "x"}, weir.CountedLocally, 0},
		{"a string", []string{"SET", "NAME", "hello"}, weir.CountedLocally, 0},
		{"a fraction", []string{"SET", "NAME", "1.5"}, weir.CountedLocally, 0},
		{"the largest number", []string{"SET", "NAME", "9223372036854775807"}, weir.CountedLocally, 0},
		{"a number without an expiry", []string{"SET", "NAME", "7"}, weir.Counted, 1},
		{"nought", []string{"SET", "NAME", "0"}, weir.Counted, 1},
		{"a negative number", []string{"SET", "NAME", "-5"}, weir.Counted, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, windows := range [][]weir.Window{{hourly(100)}, {hourly(100), daily(100)}} {
				server := redistest.Start(t)
				n := newNode(t, open(t, at(server)), lenient, windows...)
				n.until("a", weir.Counted)
				name := counters(t, server)[0].name
				server.Do(t, "DEL", name)
				write := slices.Clone(c.write)
				write[1] = name
				if c.outcome == weir.Counted { // a peek leaves no key without expiry either
					server.Do(t, write...)
					if _, err := n.Decide(t.Context(), weir.Request{Limiters: []string{"api"}, Keys: user("a"), Cost: weir.Peek}); err != nil {
						t.Error(err)
					}
					counters(t, server)
				}
				server.Do(t, write...)
				n.until("a", c.outcome)
				n.until("b", weir.Counted)
				if c.outcome == weir.CountedLocally {
					server.Do(t, "DEL", name)
					n.until("a", weir.Counted)
				}
				counters(t, server)
			}
		})
	}
}

// If a counter has lost its expiry, it keeps its count and reset, and expires
// again.
func TestAPersistedCounterExpiresAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n := newNode(t, open(t, at(server)), lenient, hourly(5))
	for spent := range int64(4) {
		n.until("a", weir.Counted)
		before := one(t, server)
		server.Do(t, "PERSIST", before.name)
		n.until("a", weir.Counted)
		if n.store.Stats().Remembered > 0 {
			eventually(t, "a refused window is asked for again", func() bool {
				n.decide("a")
				left, err := server.Try("TTL", before.name).AsInt64()
				return err == nil && left > 0
			})
		}
		if after := one(t, server); after.reset != before.reset || after.count != min(2*spent+2, 5) {
			t.Errorf("before %+v, after %+v", before, after)
		}
	}
}

// If a server may evict counters, the log names it, once.
func TestAnEvictionPolicyCausesAWarning(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]int{"noeviction": 0, "allkeys-lru": 1, "volatile-ttl": 1} {
		t.Run(policy, func(t *testing.T) {
			var log lines
			server := redistest.Start(t, "--maxmemory-policy", policy, "--maxmemory", "100mb", "--user", "weir", "on", ">right", "~*", "&*", "+@all")
			o := at(server)
			o.Username, o.Password = "weir", "right"
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
			n := newNode(t, open(t, o), deadline, hourly(1e6))
			n.until("a", weir.Counted)
			denied := func() bool {
				n.decide("a")
				return errors.Is(n.store.State().Err, redisstore.ErrDenied)
			}
			// forces the store to reconnect
			server.Do(t, "ACL", "SETUSER", "weir", "resetpass", ">another")
			server.Do(t, "CLIENT", "KILL", "USER", "weir")
			eventually(t, "access is denied", denied)
			server.Do(t, "ACL", "SETUSER", "weir", "resetpass", ">right")
			n.recovered("a", 1)
			eventually(t, "access is restored", func() bool { return !denied() })
			if n := log.with("noeviction"); n != want {
				t.Errorf("%d warnings, want %d", n, want)
			}
			if want > 0 && log.with(server.Addr()) == 0 {
				t.Error("no warning names the server")
			}
		})
	}
}

// If one process has spent a window, every other refuses it from its first request.
func TestASpentWindowIsRefusedEverywhereAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	first := newNode(t, open(t, at(server)), lenient, hourly(3), daily(100))
	for range 3 {
		first.decide("a")
	}
	spent := first.decide("a")
	if spent.Allowed {
		t.Errorf("three of three units are spent, and %+v", spent)
	}
	for range 4 {
		n := newNode(t, open(t, at(server)), lenient, hourly(3), daily(100))
		d := n.decide("a")
		if d.Allowed || d.Outcome != weir.Counted || d.Binding().Reset != spent.Binding().Reset {
			t.Errorf("spent: %+v; another process returns %+v", spent, d)
		}
	}
}

// During an outage each node admits at most the limit. Those units are counted in
// common afterwards (D25). If a window still exists in Redis, it keeps its reset;
// otherwise the local reset holds.
func TestLocallyCountedUnitsAreGivenOnce(t *testing.T) {
	t.Parallel()
	const limit = 1000
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	var nodes []*node
	for range 2 {
		nodes = append(nodes, newNode(t, open(t, redisstore.Options{Addresses: []string{proxy.Addr()}}), lenient, hourly(limit)))
	}
	for range 200 {
		for _, n := range nodes {
			n.until("a", weir.Counted)
		}
	}
	before := one(t, server)
	common := nodes[1].until("c", weir.Counted)
	eventually(t, "a window that begins now ends later", func() bool { return nodes[0].store.Now().Unix() > common.Now })
	proxy.Refuse()
	flood(nodes, 8, func() {
		eventually(t, "each has admitted its limit", func() bool {
			return nodes[0].refused[weir.CountedLocally].Load() > 0 && nodes[1].refused[weir.CountedLocally].Load() > 0
		})
	}, "a")
	admitted := total(nodes, weir.Counted, weir.CountedLocally) - 1
	if admitted <= limit || admitted > 2*limit {
		t.Errorf("two nodes with a limit of %d admitted %d", limit, admitted)
	}
	fresh := nodes[0].until("b", weir.CountedLocally)
	later := nodes[0].until("c", weir.CountedLocally) // new to this node
	if later.Binding().Reset <= common.Binding().Reset {
		t.Errorf("one window ends at %d, a later one at %d", common.Binding().Reset, later.Binding().Reset)
	}
	proxy.Pass(t)
	for _, n := range nodes {
		n.recovered("a", 1)
		if d := n.until("a", weir.Counted); d.Allowed {
			t.Errorf("after %d of %d another one is admitted", admitted, limit)
		}
	}
	// requests that found that the server answers again
	probes := total(nodes, weir.Counted, weir.CountedLocally) - admitted - 3
	if probes > 2 {
		t.Errorf("two nodes admitted %d probes", probes)
	}
	for _, c := range counters(t, server) {
		switch {
		case c.name == before.name && (c.count != admitted+probes || c.reset != before.reset):
			t.Errorf("%d units were admitted, in a window that ended at %d; it is %+v", admitted+probes, before.reset, c)
		case c.name == before.name:
		case c.count == 1 && c.reset != fresh.Binding().Reset:
			t.Errorf("one unit was counted locally, %+v; it is %+v", fresh.Binding(), c)
		case c.count == 2 && c.reset != common.Binding().Reset:
			t.Errorf("one unit was counted in common, %+v, then one locally; it is %+v", common.Binding(), c)
		case c.count > 2:
			t.Errorf("one unit or two were counted: %+v", c)
		}
	}
	t.Logf("%d admitted of a limit of %d; %+v %+v", admitted, limit, nodes[0].outages(), nodes[1].outages())
}
