package redis_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// A site is a server behind a proxy, with a second server that can take over.
type site struct {
	t            *testing.T
	first, spare *redistest.Server
	proxy        *redistest.Proxy
}

func (s *site) run(args ...string) { s.first.Do(s.t, args...) }

// faults are the ways in which Redis can stop answering, and how each ends. If
// unsure is set, commands sent meanwhile may have been counted, so a unit may be
// counted twice; no unit is admitted twice.
var faults = []struct {
	name   string
	args   []string
	begin  func(s *site)
	end    func(s *site)
	unsure bool
	lasts  time.Duration // 0 if only until it is noticed
}{
	{
		name:  "refused connections",
		begin: func(s *site) { s.proxy.Refuse() },
		end:   func(s *site) { s.proxy.Pass(s.t) },
	},
	{
		name:  "a crash",
		args:  []string{"--appendonly", "yes", "--appendfsync", "always"},
		begin: func(s *site) { s.first.Kill() },
		end:   func(s *site) { s.first.Restart(s.t) },
	},
	{
		name:   "a process that is suspended for a moment",
		begin:  func(s *site) { s.first.Pause(s.t) },
		end:    func(s *site) { s.first.Resume(s.t) },
		unsure: true,
	},
	{
		name:   "a process that is suspended until its connections are closed",
		begin:  func(s *site) { s.first.Pause(s.t) },
		end:    func(s *site) { s.first.Resume(s.t) },
		unsure: true,
		lasts:  6 * time.Second,
	},
	{
		name:  "a black hole",
		begin: func(s *site) { s.proxy.BlackHole() },
		end:   func(s *site) { s.proxy.Pass(s.t) },
	},
	{
		name: "a black hole, also for new connections",
		begin: func(s *site) {
			s.proxy.BlackHole()
			s.proxy.Cut()
		},
		end:   func(s *site) { s.proxy.Pass(s.t) },
		lasts: 6 * time.Second,
	},
	{
		name:   "answers that are too late",
		begin:  func(s *site) { s.proxy.Delay(8 * deadline) },
		end:    func(s *site) { s.proxy.Delay(deadline / 5) },
		unsure: true,
	},
	{
		name:  "LOADING",
		args:  []string{"--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024"},
		begin: beginLoading,
		end:   func(s *site) { s.run("CONFIG", "SET", "key-load-delay", "0") },
	},
	{
		name:  "READONLY, after another one was promoted",
		args:  []string{"--repl-diskless-sync-delay", "0"},
		begin: demote,
		end: func(s *site) {
			s.proxy.Retarget(s.spare.Addr())
			s.first = s.spare
		},
	},
	{
		name:  "OOM",
		begin: func(s *site) { s.run("CONFIG", "SET", "maxmemory", "1", "maxmemory-policy", "noeviction") },
		end:   func(s *site) { s.run("CONFIG", "SET", "maxmemory", "0") },
	},
	{
		name: "a password that changed",
		args: []string{"--user", "weir", "on", ">right", "~*", "&*", "+@all"},
		begin: func(s *site) {
			s.run("ACL", "SETUSER", "weir", "resetpass", ">another")
			s.proxy.Cut()
		},
		end: func(s *site) { s.run("ACL", "SETUSER", "weir", "resetpass", ">right") },
	},
}

// beginLoading makes the server load many keys from its disk, slowly, until it is
// stopped.
func beginLoading(s *site) {
	s.run("EVAL", "for i=1,60000 do redis.call('SET','other:'..i,'') end", "0")
	s.run("SAVE")
	restarted := make(chan struct{})
	s.t.Cleanup(func() { <-restarted })
	go func() {
		defer close(restarted)
		s.first.Restart(s.t) // returns when everything is loaded
	}()
	eventually(s.t, "it loads", func() bool {
		err := s.first.Try("PING").Error()
		return err != nil && strings.HasPrefix(err.Error(), "LOADING")
	})
}

// demote makes the spare server the master, and the first its replica.
func demote(s *site) {
	port := func(server *redistest.Server) string {
		_, port, _ := strings.Cut(server.Addr(), ":")
		return port
	}
	s.spare = redistest.Start(s.t)
	s.spare.Do(s.t, "REPLICAOF", "127.0.0.1", port(s.first))
	eventually(s.t, "the spare server has everything", func() bool {
		return s.spare.Info(s.t, "replication")["master_link_status"] == "up"
	})
	s.run("WAIT", "1", "10000")
	s.spare.Do(s.t, "REPLICAOF", "NO", "ONE")
	s.run("REPLICAOF", "127.0.0.1", port(s.spare))
}

// During any failure of Redis every request is answered with standings. While Redis
// does not answer, requests are counted locally; before and after, in common,
// without an operator. Locally counted units are given to Redis once (D25).
func TestAnOutageIsBridgedAndEndsWithoutAnOperator(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := &site{t: t, first: redistest.Start(t, f.args...)}
			s.proxy = redistest.NewProxy(t, s.first.Addr())
			o := redisstore.Options{Addresses: []string{s.proxy.Addr()}}
			if slices.Contains(f.args, "--user") {
				o.Username, o.Password = "weir", "right"
			}
			n := newNode(t, open(t, o), deadline, hourly(1e6))
			for range 10 {
				n.until("a", weir.Counted)
			}
			before := one(t, s.first)

			unsure := n.store.failed.Load() // the machine is busy
			f.begin(s)
			n.until("a", weir.CountedLocally)
			n.crowd("a", 1000)
			n.until("a", weir.CountedLocally)
			began := time.Now()
			eventually(t, "it has lasted", func() bool {
				n.decide("a")
				return time.Since(began) >= f.lasts
			})

			unsure -= n.store.failed.Load()
			f.end(s)
			n.recovered("a", 1)
			n.until("a", weir.Counted)
			after, allowed := one(t, s.first), total([]*node{n}, weir.Counted, weir.CountedLocally)
			unsure += n.store.failed.Load()
			if f.unsure {
				unsure = n.store.failed.Load()
			}
			if after.count < allowed || after.count > allowed+unsure {
				t.Errorf("%d units were admitted, and %d are counted; %d takes were not answered; %+v", allowed, after.count, unsure, n.outages())
			}
			if after.reset != before.reset {
				t.Errorf("the window ended at %d, now at %d", before.reset, after.reset)
			}
			// If a busy machine did not answer a take in time, before or after the
			// outage, the take may have been charged, and is not given again.
			here := total([]*node{n}, weir.CountedLocally)
			if e := n.outages(); e.Given > here || e.Given < here-unsure || e.Lost != 0 {
				t.Errorf("%d units were admitted here meanwhile, and the store was given: %+v; %d takes were not answered", here, e, unsure)
			}
			t.Logf("%d in common, %d here, %d are counted; %+v", n.allowed[weir.Counted].Load(), n.allowed[weir.CountedLocally].Load(), after.count, n.outages())
		})
	}
}

// If a process starts without Redis, it counts in common as soon as Redis is there.
func TestAStartWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		away func(*redistest.Proxy)
	}{
		{"refused connections", (*redistest.Proxy).Refuse},
		{"a black hole", (*redistest.Proxy).BlackHole},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr())
			c.away(proxy)
			s := open(t, redisstore.Options{Addresses: []string{proxy.Addr()}})
			if st := s.State(); st.Ready || st.Err == nil || st.Mode != "" {
				t.Errorf("nothing answered, and the state is %+v", st)
			}
			n := newNode(t, s, deadline, hourly(1e6))
			for range 100 {
				if d := n.decide("a"); d.Outcome != weir.CountedLocally {
					t.Fatalf("nothing answered, and the outcome is %d", d.Outcome)
				}
			}
			unsure := -n.store.failed.Load()
			proxy.Pass(t)
			n.recovered("a", 1)
			n.until("a", weir.Counted)
			if st := s.State(); !st.Ready || st.Mode != "server" {
				t.Errorf("the server answers, and the state is %+v", st)
			}
			// if a busy machine did not answer in time, the take may have been
			// charged
			unsure += n.store.failed.Load()
			if c, want := one(t, server), total([]*node{n}, weir.Counted, weir.CountedLocally); c.count < want || c.count > want+unsure {
				t.Errorf("%d units were admitted, %d are counted; %d takes were not answered; %+v", want, c.count, unsure, n.outages())
			}
		})
	}
}

// If a server never answers again, no request waits longer than the deadline, for
// any number of requests. A busy machine can delay any request, so one crowd of
// several has to meet the bound.
func TestNoRequestWaitsPastTheDeadline(t *testing.T) {
	const crowds, callers, bound = 4, 1000, 10 * deadline
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	for _, c := range []struct {
		name       string
		begin, end func()
	}{
		{"a process that is suspended", func() { server.Pause(t) }, func() { server.Resume(t) }},
		{"a black hole", proxy.BlackHole, func() { proxy.Pass(t) }},
		{"a black hole for new connections", func() { proxy.BlackHole(); proxy.Cut() }, func() { proxy.Pass(t) }},
		{"refused connections", proxy.Refuse, func() { proxy.Pass(t) }},
		{"answers that are too late", func() { proxy.Delay(20 * deadline) }, func() { proxy.Pass(t) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, redisstore.Options{Addresses: []string{proxy.Addr()}})
			healthy := newNode(t, s, lenient, hourly(1e6))
			healthy.until("a", weir.Counted)
			c.begin()
			defer c.end()
			best := time.Hour
			for range crowds {
				n := newNode(t, s, deadline, hourly(1e6)) // with a closed breaker
				waits, bridged := n.waits("a", callers), n.waits("a", callers)
				best = min(best, waits[callers-1])
				t.Logf("p50 %v p99 %v max %v; then, with the breaker open, p50 %v p99 %v max %v",
					waits[callers/2], waits[callers*99/100], waits[callers-1], bridged[callers/2], bridged[callers*99/100], bridged[callers-1])
			}
			if best > bound {
				t.Errorf("with a deadline of %v a request of each crowd waited longer than %v", deadline, best)
			}
		})
	}
}

// waits returns how long each of a crowd waits, sorted.
func (n *node) waits(who string, callers int) []time.Duration {
	all := make([]time.Duration, callers)
	var done sync.WaitGroup
	for i := range all {
		done.Go(func() {
			asked := time.Now()
			n.decide(who)
			all[i] = time.Since(asked)
		})
	}
	done.Wait()
	slices.Sort(all)
	return all
}
