package failover_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/memstore"
)

// Modes of a common store, in addition to those of a remote.
const (
	late      = hangs + 1 + iota // it counts, but its answer is lost
	remembers                    // it returns a remembered refusal
	splits                       // it cannot count these charges together
)

// A common store counts for several nodes: a memstore on another machine.
type common struct {
	inner *memstore.Store
	mode  atomic.Int32 // of its takes and pings
	gives atomic.Int32 // of its gives: answers, fails, hangs
	slow  atomic.Int64 // duration of a give in nanoseconds
	ahead atomic.Int64 // nanoseconds that the clock of Now is ahead

	mu    sync.Mutex
	takes int
	given []weir.Spent
	calls []int // number of windows of each give
}

func newCommon(t testing.TB) *common {
	t.Helper()
	c := new(common)
	c.empty(t)
	return c
}

// empty deletes the store's counts. No call may run meanwhile.
func (c *common) empty(t testing.TB) {
	t.Helper()
	c.inner = newMem(t, time.Now)
}

// A link is one node's connection to a common store, with its cache.
type link struct {
	*common
	known sync.Map // of string to weir.Used
}

func (l *link) Take(ctx context.Context, charges []weir.Charge, receipt *weir.Receipt) error {
	l.mu.Lock()
	l.takes++
	l.mu.Unlock()
	switch l.mode.Load() {
	case fails:
		return errDown
	case splits:
		return fmt.Errorf("two machines: %w", weir.ErrCharges)
	case hangs:
		<-ctx.Done()
		return ctx.Err()
	case late:
		if err := l.inner.Take(ctx, charges, receipt); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	case remembers:
		now := time.Now().Unix()
		*receipt = weir.Receipt{Remembered: true, Now: now}
		for i, c := range charges {
			receipt.Used[i] = weir.Used{Count: c.Limit, Reset: now + 1}
		}
		return nil
	}
	err := l.inner.Take(ctx, charges, receipt)
	for i, c := range charges {
		l.known.Store(string(c.Key), receipt.Used[i])
	}
	return err
}

func (l *link) Ping(ctx context.Context) error {
	l.mu.Lock()
	l.takes++
	l.mu.Unlock()
	switch l.mode.Load() {
	case fails:
		return errDown
	case hangs, late:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (l *link) Reach(ctx context.Context, spent []weir.Spent, reached []bool) error {
	if err := l.Ping(ctx); err != nil {
		return err
	}
	for i := range spent {
		reached[i] = true
	}
	return nil
}

func (l *link) Recall(charges []weir.Charge, used []weir.Used) {
	for i, c := range charges {
		u, _ := l.known.Load(string(c.Key))
		used[i], _ = u.(weir.Used)
		used[i] = used[i].At(l.Now().Unix(), c.End(l.Now().Unix()))
	}
}

func (l *link) Give(ctx context.Context, spent []weir.Spent) (lost int64, err error) {
	l.mu.Lock()
	l.calls = append(l.calls, len(spent))
	l.mu.Unlock()
	for _, s := range spent {
		lost += s.Used.Count
	}
	switch l.gives.Load() {
	case fails:
		return lost, errDown
	case hangs:
		<-ctx.Done()
		return lost, ctx.Err()
	}
	select {
	case <-time.After(time.Duration(l.slow.Load())):
	case <-ctx.Done():
		return lost, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range spent {
		s.Key = slices.Clone(s.Key)
		l.given = append(l.given, s)
		charges := []weir.Charge{{Key: s.Key, Scope: s.Scope, Subject: s.Subject, Per: s.Per, Ends: s.Ends, Limit: weir.MaxLimit}}
		var r weir.Receipt
		if err := l.inner.Take(ctx, charges, &r); err != nil {
			return lost, err
		}
		if r.Used[0].Reset == 0 {
			l.inner.StartFrom(charges, []weir.Used{s.Used})
			continue
		}
		charges[0].Cost = s.Used.Count
		if err := l.inner.Take(ctx, charges, &r); err != nil {
			return lost, err
		}
	}
	return 0, nil
}

func (l *link) Now() time.Time { return time.Now().Add(time.Duration(l.ahead.Load())) }

// units returns how many units the store was given.
func (c *common) units() (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.given {
		n += s.Used.Count
	}
	return n
}

func (c *common) asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takes
}

// windowsGiven returns how many windows each give had, with or without success.
func (c *common) windowsGiven() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

// A node is a Decider with a common store, and the events it received.
type node struct {
	*bench
	store   *common
	mu      sync.Mutex
	reports []failover.Event
	slow    atomic.Int64 // duration of OnEvent in nanoseconds
}

// newNode must be called in a synctest bubble: its clock is the bubble's.
func newNode(t *testing.T, store *common, limiters ...weir.Limiter) *node {
	t.Helper()
	return newNodeWithin(t, 100*time.Millisecond, store, limiters...)
}

func newNodeWithin(t *testing.T, deadline time.Duration, store *common, limiters ...weir.Limiter) *node {
	t.Helper()
	return newNodeBy(t, deadline, store, &link{common: store}, limiters...)
}

// newNodeBy is newNode with the given link to a store.
func newNodeBy(t *testing.T, deadline time.Duration, store *common, way weir.Shared, limiters ...weir.Limiter) *node {
	t.Helper()
	fallback, err := memstore.New(memstore.Options{Now: way.Now})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{store: store}
	n.bench = newBench(t, policyOf(limiters...), way, fallback, failover.Options{
		Deadline: deadline,
		OnEvent: func(e failover.Event) {
			<-time.After(time.Duration(n.slow.Load()))
			n.mu.Lock()
			defer n.mu.Unlock()
			n.reports = append(n.reports, e)
		},
	})
	return n
}

// events returns the events that the node received.
func (n *node) events() []failover.Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.reports)
}

// open sends requests until the breaker is open. The store's mode must cause that.
func (n *node) open(c caller) (admitted int64) {
	n.Helper()
	for range 20 {
		if n.ask("l", 0, c).Allowed {
			admitted++
		}
	}
	before := n.store.asked()
	if n.ask("l", weir.Peek, c); n.store.asked() != before {
		n.Fatal("the breaker is not open")
	}
	return admitted
}

// openByMany opens the breaker with requests of callers that have no pending units.
func (n *node) openByMany() {
	n.Helper()
	for i := range 20 {
		n.ask("l", 0, who(1000+i))
	}
	before := n.store.asked()
	if n.ask("l", weir.Peek, who(999)); n.store.asked() != before {
		n.Fatal("the breaker is not open")
	}
}

// outcome decides one request and checks its outcome.
func (n *node) outcome(want weir.Outcome, c caller) weir.Decision {
	n.Helper()
	d := n.ask("l", 0, c)
	if d.Outcome != want {
		n.Errorf("outcome %v, want %v", d.Outcome, want)
	}
	return d
}

// recovered waits until the outage has ended. It fails the test unless the node
// received an event for the outage and one for its end.
func (n *node) recovered() failover.Event {
	n.Helper()
	if n.over.Health().Failing {
		<-time.After(3 * time.Second)
		n.over.Probe(n.Context())
		synctest.Wait()
	}
	e := n.events()
	if len(e) != 2 || !e[0].Failing || e[0].Err == nil || e[1].Failing || e[1].Err != nil {
		n.Fatalf("events are %+v, want failing once and recovered once", e)
	}
	if h := n.over.Health(); h != (failover.Health{}) {
		n.Errorf("recovered, and Health is %+v", h)
	}
	return e[1]
}
