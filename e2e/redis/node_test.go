package redis_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/internal/logtest"
	"github.com/weirlimit/weir/redisstore"
)

// A node is one machine's Decider. It counts in Redis, and in memory during an
// outage. Every decision is checked: it is not an error, and has a valid standing
// for each window.
type node struct {
	t testing.TB
	*weir.Decider
	over     *failover.Store // around store
	store    *watched
	windows  int
	allowed  [weir.StoreUnavailable + 1]atomic.Int64 // decisions by outcome
	refused  [weir.StoreUnavailable + 1]atomic.Int64
	recovers atomic.Int64 // number of recoveries of the store

	mu  sync.Mutex
	sum failover.Event // sum of the recovery events
}

// A watched store counts the failures of its Take, and of them those without any answer, which the
// server may have counted.
type watched struct {
	*redisstore.Store
	failed, unanswered atomic.Int64
}

func (w *watched) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	err := w.Store.Take(ctx, charges, r)
	if err != nil {
		w.failed.Add(1)
		if errors.Is(err, context.DeadlineExceeded) {
			w.unanswered.Add(1)
		}
	}
	return err
}

const (
	deadline = 50 * time.Millisecond // for a server that fails
	lenient  = 10 * time.Second      // for a server that is busy
)

// newNode returns a node with one limiter. It is closed with the test.
func newNode(t testing.TB, s *redisstore.Store, d time.Duration, windows ...weir.Window) *node {
	t.Helper()
	n := &node{t: t, store: &watched{Store: s}, windows: len(windows)}
	policy := weir.Policy{Limiters: []weir.Limiter{{Name: "api", Windows: windows}}}
	n.over = bridge(t, s, n.store, failover.Options{Deadline: d, OnEvent: n.onEvent})
	var err error
	if n.Decider, err = weir.New(policy, n.over, weir.Options{}); err != nil {
		t.Fatal(err)
	}
	return n
}

// keepProbing probes the server until the test ends, as a server of Weir does.
func (n *node) keepProbing() {
	ctx, cancel := context.WithCancel(context.Background())
	var probing sync.WaitGroup
	probing.Go(func() { n.over.KeepProbing(ctx) })
	n.t.Cleanup(func() {
		cancel()
		probing.Wait()
	})
}

func (n *node) onEvent(e failover.Event) {
	if e.Failing {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sum.For += e.For
	n.sum.Local += e.Local
	n.sum.Given += e.Given
	n.sum.Lost += e.Lost
	n.recovers.Add(1)
}

// outages returns the sum of the events of outages that have ended.
func (n *node) outages() failover.Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sum
}

// hourly and daily return windows that almost always outlast a test.
func hourly(limit int64) weir.Window { return window(limit, time.Hour) }
func daily(limit int64) weir.Window  { return window(limit, 24*time.Hour) }

func window(limit int64, per time.Duration) weir.Window {
	return weir.Window{Limit: limit, Per: per, Key: weir.Key{{"user"}}}
}

// A user is the caller that is counted.
type user string

func (u user) AppendKey(dst []byte, source string) ([]byte, bool) { return append(dst, u...), true }

// decide decides a request of one unit.
func (n *node) decide(who string) weir.Decision {
	d, err := n.Decide(context.Background(), weir.Request{Limiters: []string{"api"}, Keys: user(who)})
	switch standings := d.Standings(); {
	case err != nil:
		n.t.Errorf("a decision of %s: %v", who, err)
	case len(standings) != n.windows:
		n.t.Errorf("%d standings of %d windows: %+v", len(standings), n.windows, d)
	case d.Outcome != weir.Counted && d.Outcome != weir.CountedLocally:
		n.t.Errorf("outcome %d: %+v", d.Outcome, d)
	default:
		for _, s := range standings {
			per := int64(s.Window.Per / time.Second)
			if s.Remaining < 0 || s.Remaining > s.Window.Limit || s.Reset <= d.Now || s.Reset > d.Now+per || s.Refused && (d.Allowed || s.Remaining > 0) {
				n.t.Errorf("at %d, allowed %v, outcome %d: a window of %d in %d s is %+v", d.Now, d.Allowed, d.Outcome, s.Window.Limit, per, s)
			}
		}
		if d.Allowed == d.Binding().Refused {
			n.t.Errorf("allowed %v, and the binding window is %+v", d.Allowed, d.Binding())
		}
		if d.Allowed {
			n.allowed[d.Outcome].Add(1)
		} else {
			n.refused[d.Outcome].Add(1)
		}
	}
	return d
}

// until sends requests until a decision has the outcome, and returns that decision.
func (n *node) until(who string, o weir.Outcome) (d weir.Decision) {
	n.t.Helper()
	eventually(n.t, "outcome "+strconv.Itoa(int(o)), func() bool {
		d = n.decide(who)
		return d.Outcome == o
	})
	return d
}

// recovered sends requests until the store has recovered for the nth time.
func (n *node) recovered(who string, nth int64) {
	n.t.Helper()
	eventually(n.t, "the store is reported as ready", func() bool {
		n.decide(who)
		return n.recovers.Load() >= nth
	})
	if h := n.over.Health(); h.Failing {
		n.t.Errorf("the store is reported as ready, and %+v", h)
	}
}

// crowd sends one request from each of many callers at once, and waits for all
// answers.
func (n *node) crowd(who string, callers int) {
	var all sync.WaitGroup
	for range callers {
		all.Go(func() { n.decide(who) })
	}
	all.Wait()
}

// flood has callers send requests to every node, for each of who, without a pause
// while during runs. After a refusal or a local answer a caller waits a
// millisecond, because it would otherwise starve the others.
func flood(nodes []*node, callers int, during func(), who ...string) {
	var all sync.WaitGroup
	over := make(chan struct{})
	for i := range callers {
		n, who := nodes[i%len(nodes)], who[i/len(nodes)%len(who)]
		all.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for {
				if d := n.decide(who); d.Outcome == weir.CountedLocally || !d.Allowed {
					<-tick.C
				}
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	defer all.Wait()
	defer close(over)
	during()
}

// total returns the number of allowed decisions with the given outcomes.
func total(nodes []*node, outcomes ...weir.Outcome) (sum int64) {
	for _, n := range nodes {
		for _, o := range outcomes {
			sum += n.allowed[o].Load()
		}
	}
	return sum
}

// eventually polls until holds returns true.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	const patience = 4 * time.Minute // an idle machine needs less than ten seconds
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not after %v", what, patience)
		}
	}
}

// A counter is one window on a server.
type counter struct {
	name         string
	count, reset int64
	value        string
}

// counters reads all windows of servers, and checks that each expires.
func counters(t testing.TB, servers ...*redistest.Server) (all []counter) {
	t.Helper()
	for _, server := range servers {
		keys, err := server.Try("KEYS", "weir:{*").AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if strings.HasPrefix(key, "weir:{trial") || strings.HasSuffix(key, ":trial") || strings.HasSuffix(key, ":given") || strings.HasSuffix(key, ":reset") || strings.HasSuffix(key, ":leased") {
				continue // a probe that lasts a second, or a mark
			}
			value, err := server.Try("GET", key).ToString()
			if err != nil {
				t.Fatalf("GET %s: %v", key, err)
			}
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				t.Errorf("%s holds %q", key, value)
			}
			reset, err := server.Try("EXPIRETIME", key).AsInt64()
			if err != nil || reset <= 0 {
				t.Errorf("%s, %s, expires at %d (%v)", key, value, reset, err)
			}
			all = append(all, counter{key, n & (1<<31 - 1), reset, value})
		}
	}
	return all
}

// one returns the only window of servers.
func one(t testing.TB, servers ...*redistest.Server) counter {
	t.Helper()
	all := counters(t, servers...)
	if len(all) != 1 {
		t.Fatalf("%d windows, want 1: %+v", len(all), all)
	}
	return all[0]
}

// A lines is a log that tests can search.
type lines struct{ logtest.Buffer }

// with counts the lines that contain a text.
func (l *lines) with(text string) (n int) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
