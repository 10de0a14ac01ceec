package redisstore_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
)

// A node is what runs on one machine: a Decider that counts in Redis, and in memory while that does not answer. Everything
// that it decides is looked at: it is no error, and tells of each window where it stands.
type node struct {
	t testing.TB
	*weir.Decider
	over     *failover.Store // around store
	store    *watched
	windows  int
	allowed  [weir.StoreUnavailable + 1]atomic.Int64 // decisions by outcome
	refused  [weir.StoreUnavailable + 1]atomic.Int64
	recovers atomic.Int64 // how often the store answered again

	mu   sync.Mutex
	told failover.Event // all that said so, added up
}

// A watched store is one whose failures are counted.
type watched struct {
	*redisstore.Store
	failed atomic.Int64
}

func (w *watched) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	err := w.Store.Take(ctx, charges, r)
	if err != nil {
		w.failed.Add(1)
	}
	return err
}

const (
	deadline = 50 * time.Millisecond // of a node whose server fails
	lenient  = 10 * time.Second      // of one whose server is busy, at most
)

// newNode returns a node with one limiter, closed with the test.
func newNode(t testing.TB, s *redisstore.Store, d time.Duration, windows ...weir.Window) *node {
	t.Helper()
	mem, err := memstore.New(memstore.Options{Now: s.Now})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, store: &watched{Store: s}, windows: len(windows)}
	policy := weir.Policy{Limiters: []weir.Limiter{{Name: "api", Windows: windows}}}
	if n.over, err = failover.New(n.store, mem, failover.Options{Deadline: d, OnEvent: n.hear}); err != nil {
		t.Fatal(err)
	}
	n.Decider, err = weir.New(policy, n.over, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = n.over.Close(ctx) // the server may be gone
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *node) hear(e failover.Event) {
	if e.Failing {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told.For += e.For
	n.told.Local += e.Local
	n.told.Given += e.Given
	n.told.Lost += e.Lost
	n.recovers.Add(1)
}

// outages is what was told of outages that are over, added up.
func (n *node) outages() failover.Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.told
}

// hourly and daily are windows that do not end while a test looks at them, unless it is unlucky once in months.
func hourly(limit int64) weir.Window { return window(limit, time.Hour) }
func daily(limit int64) weir.Window  { return window(limit, 24*time.Hour) }

func window(limit int64, per time.Duration) weir.Window {
	return weir.Window{Limit: limit, Per: per, Key: weir.Key{{"user"}}}
}

// A user is who is counted.
type user string

func (u user) AppendKey(dst []byte, source string) ([]byte, bool) { return append(dst, u...), true }

// decide asks for one unit.
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
				n.t.Errorf("at %d, allowed %v, outcome %d: a window of %d in %d s stands at %+v", d.Now, d.Allowed, d.Outcome, s.Window.Limit, per, s)
			}
		}
		if d.Allowed == d.Binding().Refused {
			n.t.Errorf("allowed %v, and the binding window says %+v", d.Allowed, d.Binding())
		}
		if d.Allowed {
			n.allowed[d.Outcome].Add(1)
		} else {
			n.refused[d.Outcome].Add(1)
		}
	}
	return d
}

// until asks until a decision has the outcome, and returns that.
func (n *node) until(who string, o weir.Outcome) (d weir.Decision) {
	n.t.Helper()
	eventually(n.t, "outcome "+strconv.Itoa(int(o)), func() bool {
		d = n.decide(who)
		return d.Outcome == o
	})
	return d
}

// recovered asks until the store is said to answer again, for the nth time.
func (n *node) recovered(who string, nth int64) {
	n.t.Helper()
	eventually(n.t, "the store is said to answer", func() bool {
		n.decide(who)
		return n.recovers.Load() >= nth
	})
	if h := n.over.Health(); h.Failing {
		n.t.Errorf("the store is said to answer, and %+v", h)
	}
}

// crowd has many callers ask once each, all at a time, and returns when all are answered.
func (n *node) crowd(who string, callers int) {
	var all sync.WaitGroup
	for range callers {
		all.Go(func() { n.decide(who) })
	}
	all.Wait()
}

// flood has callers ask without a pause while during runs, at every node and for each of who. Who is answered without Redis, or
// refused, asks again a millisecond later: else nobody but him would get to the processor.
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

// total is how many decisions were allowed, by the outcomes given.
func total(nodes []*node, outcomes ...weir.Outcome) (sum int64) {
	for _, n := range nodes {
		for _, o := range outcomes {
			sum += n.allowed[o].Load()
		}
	}
	return sum
}

// eventually tries until something holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	const patience = 40 * time.Second // nothing takes a quarter of it on an idle machine
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

// A counter is one window as a server has it.
type counter struct {
	name         string
	count, reset int64
	value        string
}

// counters reads all windows that servers have, and sees to it that none is there for ever.
func counters(t testing.TB, servers ...*redistest.Server) (all []counter) {
	t.Helper()
	for _, server := range servers {
		keys, err := server.Try("KEYS", "weir:{*").AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if strings.HasPrefix(key, "weir:{trial") || strings.HasSuffix(key, ":trial") || strings.HasSuffix(key, ":given") {
				continue // nobody's: it lasts a second; or a mark
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

// one is the only window that servers have.
func one(t testing.TB, servers ...*redistest.Server) counter {
	t.Helper()
	all := counters(t, servers...)
	if len(all) != 1 {
		t.Fatalf("%d windows, want 1: %+v", len(all), all)
	}
	return all[0]
}

// A lines is a log that a test reads.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// with counts the lines that contain a text.
func (l *lines) with(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
