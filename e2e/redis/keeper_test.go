package redis_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

func reset(t testing.TB, s *redisstore.Store, charges ...weir.Charge) {
	t.Helper()
	if err := s.Reset(t.Context(), charges); err != nil {
		t.Fatal(err)
	}
}

// grant gives who's hourly window a limit for an hour; 0 removes the grant.
func grant(t testing.TB, s *redisstore.Store, who string, limit int64) {
	t.Helper()
	if err := s.Grant(t.Context(), []weir.Charge{charge(who, 1, 3600, 1)}, []weir.Grant{{Limit: limit, Until: s.Now().Unix() + 3600}}); err != nil {
		t.Fatal(err)
	}
}

// granted returns the granted limit of who's hourly window, or 0.
func granted(s *redisstore.Store, who string) int64 {
	var g [1]weir.Grant
	s.Granted([]weir.Charge{charge(who, 1, 3600, 1)}, g[:])
	return g[0].Limit
}

// Nodes do not talk to each other. Still, each knows of an operator's change at
// another node within two seconds.
func TestAnOperatorsChangeReachesEveryNodeWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) redisstore.Options{
		"server": func(t *testing.T) redisstore.Options { return at(redistest.Start(t)) },
		"cluster": func(t *testing.T) redisstore.Options {
			return redisstore.Options{Addresses: redistest.StartCluster(t, 3, 0).Addrs()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := start(t)
			a, b := open(t, o), open(t, o)
			minute, hour := charge("a", 3, 3600, 1), charge("a", 9, 7200, 1)
			for round := range int64(3) {
				eventually(t, "both refuse", func() bool { return !take(t, a, minute, hour).Allowed && !take(t, b, minute, hour).Allowed })
				// else this test proves nothing
				eventually(t, "the other node does not ask", func() bool { return take(t, b, minute, hour).Remembered })
				quick(t, "a reset", func() { reset(t, a, minute, hour) }, func() bool { return take(t, b, minute, hour).Allowed })
				quick(t, "a grant", func() { grant(t, a, "a", 50+round) }, func() bool { return granted(b, "a") == 50+round })
				quick(t, "another grant", func() { grant(t, b, "b", 60+round) }, func() bool { return granted(a, "b") == 60+round && granted(a, "a") == 50+round })
				quick(t, "a grant that is taken back", func() { grant(t, b, "a", 0) }, func() bool { return granted(a, "a") == 0 })
			}
			if g := granted(open(t, o), "b"); g != 62 {
				t.Errorf("a node that has just started knows of a grant of %d, want 62", g)
			}
		})
	}
}

// quick calls do, and waits until felt returns true, for up to two seconds twice in a row. On a
// busy machine it tries again.
func quick(t *testing.T, what string, do func(), felt func() bool) {
	t.Helper()
	var took time.Duration
	for tries, inTime := 0, 0; tries < 20; tries++ {
		do()
		since := time.Now()
		eventually(t, what, felt)
		if took = time.Since(since); took > 2*time.Second {
			inTime = 0
		} else if inTime++; inTime == 2 {
			return
		}
	}
	t.Errorf("%s was felt after %v", what, took)
}

// If a window was reset, an outage starts from 0, not from the old count.
func TestAnOutageStartsFromTheResetCount(t *testing.T) {
	t.Parallel()
	s := open(t, at(redistest.Start(t)))
	both, used := []weir.Charge{charge("a", 3, 3600, 1), charge("a", 9, 7200, 1)}, make([]weir.Used, 2)
	for range 4 {
		take(t, s, both...)
	}
	if s.Recall(both, used); used[0].Count != 3 || used[1].Count != 3 {
		t.Fatalf("before the reset it remembers %+v", used)
	}
	reset(t, s, both[0])
	if s.Recall(both, used); used[0] != (weir.Used{}) || used[1].Count != 3 {
		t.Errorf("after the reset of one it remembers %+v", used)
	}
	if r := take(t, s, both...); !r.Allowed || r.Remembered || r.Used[0].Count != 1 || r.Used[1].Count != 4 {
		t.Errorf("after the reset: %+v", r)
	}
}

func TestWindowsInDifferentSlotsAreNotResetTogether(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	s := open(t, redisstore.Options{Addresses: cluster.Addrs()})
	a, b := charge("a", 1, 3600, 1), charge("b", 1, 3600, 1)
	take(t, s, a)
	take(t, s, b)
	if err := s.Reset(t.Context(), []weir.Charge{a, b}); !errors.Is(err, weir.ErrCharges) {
		t.Errorf("two callers were reset together: %v", err)
	}
	if n := len(counters(t, cluster.Nodes...)); n != 2 {
		t.Errorf("%d of two windows are left", n)
	}
}

// During an outage the last known grants hold until they end. If a server comes
// back empty, it has no grants.
func TestGrantsHoldThroughAnOutageUntilTheyEnd(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	var ahead atomic.Int64
	o := redisstore.Options{Addresses: []string{proxy.Addr()}, Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}
	s, direct := open(t, o), open(t, at(server))
	take(t, s, charge("a", 9, 3600, 1))
	grant(t, s, "a", 50)
	proxy.Refuse()
	eventually(t, "it is away", func() bool { return !s.State().Ready })
	if g := granted(s, "a"); g != 50 {
		t.Errorf("while the server is away: %d", g)
	}
	if err := s.Grant(t.Context(), []weir.Charge{charge("b", 9, 3600, 1)}, []weir.Grant{{Limit: 5, Until: s.Now().Unix() + 60}}); err == nil {
		t.Error("a grant was given while the server was away")
	}
	if err := s.Reset(t.Context(), []weir.Charge{charge("a", 9, 3600, 1)}); err == nil {
		t.Error("a window was reset while the server was away")
	}
	grant(t, direct, "c", 70)
	ahead.Store(int64(3590 * time.Second))
	if g := granted(s, "a"); g != 50 {
		t.Errorf("before its end: %d", g)
	}
	ahead.Store(int64(3601 * time.Second))
	if g := granted(s, "a"); g != 0 {
		t.Errorf("after its end: %d", g)
	}
	ahead.Store(0)
	proxy.Pass(t)
	eventually(t, "it knows what was granted meanwhile", func() bool { return granted(s, "c") == 70 && granted(s, "a") == 50 })
	server.Do(t, "FLUSHALL")
	eventually(t, "nothing is granted", func() bool { return granted(s, "c") == 0 && granted(s, "a") == 0 })
	grant(t, s, "b", 5)
	eventually(t, "both know", func() bool { return granted(s, "b") == 5 && granted(direct, "b") == 5 })
}

// Everything on the server expires: an ended grant at the next write, the rest with
// the last grant.
func TestGrantsExpireOnTheServer(t *testing.T) {
	t.Parallel()
	server, clock := redistest.StartWithClock(t)
	o := at(server)
	o.Now = clock.Now
	s := open(t, o)
	give := func(who string, limit, seconds int64) {
		t.Helper()
		if err := s.Grant(t.Context(), []weir.Charge{charge(who, 1, 3600, 1)}, []weir.Grant{{Limit: limit, Until: clock.Now().Unix() + seconds}}); err != nil {
			t.Fatal(err)
		}
	}
	has := func(fields, lasts int64) {
		t.Helper()
		n, err := server.Try("HLEN", "weir:grants").AsInt64()
		if err != nil || n != fields {
			t.Errorf("%d fields, want %d (%v)", n, fields, err)
		}
		left, err := server.Try("EXPIRETIME", "weir:grants").AsInt64()
		if want := clock.Now().Unix() + lasts; lasts > 0 && left != want || lasts <= 0 && left != lasts {
			t.Errorf("it expires at %d, want %d (%v)", left, want, err)
		}
	}
	has(0, -2)
	give("a", 5, 100)
	give("b", 6, 50)
	has(3, 100) // plus the version
	clock.Advance(60 * time.Second)
	has(3, 40)
	give("c", 7, 10)
	has(3, 40)
	give("a", 0, 0)
	has(2, 10)
	give("c", 0, 0)
	has(0, -2)
	give("c", 7, 10)
	clock.Advance(10 * time.Second)
	has(0, -2)
}

func TestMoreGrantsThanTheServerMayHaveAreRefused(t *testing.T) {
	t.Parallel()
	s := open(t, at(redistest.Start(t)))
	until := s.Now().Unix() + 3600
	var all []weir.Charge
	var grants []weir.Grant
	for i := range weir.MaxGrants {
		all, grants = append(all, charge(fmt.Sprint(i), 1, 3600, 1)), append(grants, weir.Grant{Limit: 5, Until: until})
	}
	if err := s.Grant(t.Context(), all, grants); err != nil {
		t.Fatal(err)
	}
	more := []weir.Charge{all[0], charge("one more", 1, 3600, 1)}
	if err := s.Grant(t.Context(), more, []weir.Grant{{Limit: 6, Until: until}, {Limit: 6, Until: until}}); err == nil || !strings.Contains(err.Error(), "10001") {
		t.Errorf("one more: %v", err)
	}
	if granted(s, "0") != 5 || granted(s, "one more") != 0 {
		t.Errorf("it was refused, and %d, %d", granted(s, "0"), granted(s, "one more"))
	}
	if err := s.Grant(t.Context(), more, []weir.Grant{{}, {Limit: 6, Until: until}}); err != nil || granted(s, "0") != 0 || granted(s, "one more") != 6 {
		t.Errorf("one for another: %v, %d, %d", err, granted(s, "0"), granted(s, "one more"))
	}
	if st := s.State(); !st.Ready {
		t.Errorf("a refusal by the server counts as a failure: %+v", st)
	}
}

// Another secret gives other hashes. Grants of the old secret match no caller, and
// are removed.
func TestAChangedSecretDropsGrants(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, at(server))
	grant(t, s, "a", 50)
	other := "secret:" + base64.RawStdEncoding.EncodeToString(bytes.Repeat([]byte("o"), 32))
	server.Do(t, "SET", "weir:secret", other)
	eventually(t, "the secret is adopted", func() bool { return granted(s, "a") == 0 })
	if late := open(t, at(server)); granted(late, "a") != 0 {
		t.Error("a node that starts now has a grant of the old secret")
	}
	grant(t, s, "b", 60)
	if n, err := server.Try("HLEN", "weir:grants").AsInt64(); err != nil || n != 2 || granted(s, "b") != 60 || granted(s, "a") != 0 {
		t.Errorf("%d fields (%v), b has %d, a has %d", n, err, granted(s, "b"), granted(s, "a"))
	}
}

// If a field is not a grant, it is logged and ignored. Counting goes on, and the
// known grants stay in force.
func TestInvalidGrantFieldsAreIgnored(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var log lines
	o := at(server)
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := open(t, o)
	grant(t, s, "a", 50)
	version, err := server.Try("HGET", "weir:grants", "version").ToString()
	if err != nil {
		t.Fatal(err)
	}
	field := strings.Repeat("A", 22)
	server.Do(t, "HSET", "weir:grants", "nobody", "5 1900000000", field, "5", field[1:]+"B", "5 x", field[2:]+"CC", "0 1900000000", field[2:]+"DQ",
		"99999999999 1900000000", field[2:]+"EQ", "-5 -5", field[2:]+"FQ", "5 99999999999999999999", "", "", "\x00\xff", "\x00", "version", version+"!")
	eventually(t, "it is logged", func() bool { return log.with("another program writes") == 1 })
	if g := granted(s, "a"); g != 50 {
		t.Errorf("a grant that is left has %d", g)
	}
	grant(t, s, "b", 60) // removes the invalid fields
	if n, err := server.Try("HLEN", "weir:grants").AsInt64(); err != nil || n != 3 || granted(s, "a") != 50 || granted(s, "b") != 60 {
		t.Errorf("%d fields (%v), a has %d, b has %d", n, err, granted(s, "a"), granted(s, "b"))
	}
	for _, foreign := range [][]string{
		{"SET", "weir:grants", "x"},
		{"EVAL", "redis.call('DEL',KEYS[1]) for i=1,30000 do redis.call('HSET',KEYS[1],i,i) end redis.call('HSET',KEYS[1],'version','x')", "1", "weir:grants"},
	} {
		logged := log.with("cannot read the grants")
		server.Do(t, foreign...)
		eventually(t, "it is logged", func() bool { return log.with("cannot read the grants") == logged+1 })
		if err := s.Grant(t.Context(), []weir.Charge{charge("c", 1, 3600, 1)}, []weir.Grant{{Limit: 5, Until: s.Now().Unix() + 60}}); err == nil {
			t.Errorf("%s: granted all the same", foreign[0])
		}
		if r := take(t, s, charge("a", 9, 3600, 1)); !r.Allowed || granted(s, "a") != 50 {
			t.Errorf("%s: %+v, a has %d", foreign[0], r, granted(s, "a"))
		}
		server.Do(t, "DEL", "weir:grants")
		eventually(t, "what it has is what holds", func() bool { return granted(s, "a") == 0 })
		grant(t, s, "a", 50)
	}
}

// Granted runs for each request, so it does not allocate. If the server has lost
// its scripts, they are sent again.
func TestGrantedDoesNotAllocate(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, at(server))
	both, found := []weir.Charge{charge("a", 1, 3600, 1), charge("b", 1, 3600, 1)}, make([]weir.Grant, 2)
	ask := func() { s.Granted(both, found) }
	// the store's own goroutine may allocate in the meantime
	if n := testing.AllocsPerRun(100, ask); n > 0.1 {
		t.Errorf("with none: %v", n)
	}
	server.Do(t, "SCRIPT", "FLUSH")
	grant(t, s, "a", 50)
	server.Do(t, "SCRIPT", "FLUSH")
	reset(t, s, both[0])
	if n := testing.AllocsPerRun(100, ask); n > 0.1 || found[0].Limit != 50 {
		t.Errorf("with one: %v, %+v", n, found)
	}
}
