package failover_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/memstore"
)

// A listener is a store on another machine that keeps the contexts of its takes.
type listener struct {
	mu   sync.Mutex
	seen []context.Context
	wait bool // wait until the contexts end
}

func (l *listener) Take(ctx context.Context, charges []weir.Charge, receipt *weir.Receipt) error {
	l.mu.Lock()
	l.seen = append(l.seen, ctx)
	l.mu.Unlock()
	if done := ctx.Done(); l.wait {
		<-done
		return ctx.Err()
	}
	receipt.Allowed = true
	return nil
}

func newListening(t testing.TB, store weir.Store, deadline time.Duration) *bench {
	t.Helper()
	return newBench(t, policyOf(limiter("l", "3 per minute by ip")), store, nil, failover.Options{Deadline: deadline})
}

// No request waits longer than the deadline, counted from its own start, or much
// less, whenever it starts (D25).
func TestNoRequestWaitsPastItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deadline = 160 * time.Millisecond
		b := newListening(t, &listener{wait: true}, deadline)
		var wg sync.WaitGroup
		for range 19 { // the breaker stays closed
			wg.Go(func() {
				start := time.Now()
				b.ask("l", 0, ip)
				if waited := time.Since(start); waited > deadline || waited <= deadline-deadline/16 {
					t.Errorf("waited %v of %v", waited, deadline)
				}
			})
			<-time.After(7 * time.Millisecond)
		}
		wg.Wait()
	})
}

// Takes that start at about the same time share a deadline. Later takes have their
// own. Each take keeps its deadline for as long as it holds it.
func TestConcurrentTakesShareADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{}
		b := newListening(t, l, 160*time.Millisecond)
		start := time.Now()
		for range 30 {
			b.ask("l", 0, ip)
			<-time.After(time.Millisecond)
		}
		for i, ctx := range l.seen {
			at, ok := ctx.Deadline()
			if want := start.Add(time.Duration(160+i/10*10) * time.Millisecond); !ok || !at.Equal(want) {
				t.Errorf("take %d has until %v, want %v", i, at.Sub(start), want.Sub(start))
			}
			if ctx.Err() != nil {
				t.Errorf("take %d is over: %v", i, ctx.Err())
			}
		}
		<-l.seen[0].Done()
		if waited := time.Since(start); waited != 160*time.Millisecond {
			t.Errorf("the first is over after %v", waited)
		}
		if err := l.seen[9].Err(); err != context.DeadlineExceeded {
			t.Errorf("the tenth returns %v", err)
		}
		if err := l.seen[10].Err(); err != nil {
			t.Errorf("the eleventh returns %v", err)
		}
	})
}

// A take has the values of its request's context, but not its cancellation (D5).
func TestATakeKeepsTheValuesOfItsContextButNotItsCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		l := &listener{}
		b := newListening(t, l, time.Second)
		ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
		cancel(errors.New("gone"))
		if _, err := b.d.Decide(ctx, weir.Request{Limiters: []string{"l"}, Keys: ip}); err != nil {
			t.Fatal(err)
		}
		seen := l.seen[0]
		if seen.Value(key{}) != "value" || seen.Err() != nil || context.Cause(seen) != nil {
			t.Errorf("the take has value %v, %v, %v", seen.Value(key{}), seen.Err(), context.Cause(seen))
		}
		<-seen.Done()
		if err := context.Cause(seen); err != context.DeadlineExceeded {
			t.Errorf("its cause is %v", err)
		}
		child, stop := context.WithTimeout(seen, time.Minute)
		defer stop()
		<-child.Done()
		if err := child.Err(); err != context.DeadlineExceeded {
			t.Errorf("a derived context has the error %v", err)
		}
	})
}

// An outward store answers at once, but is not known to be in this process.
type outward struct{ weir.Store }

func (s outward) Take(ctx context.Context, charges []weir.Charge, receipt *weir.Receipt) error {
	ctx.Done()
	return s.Store.Take(ctx, charges, receipt)
}

// BenchmarkDeadline measures a deadline's cost. It compares takes of a store that
// may not answer, of the same store in the process, and with a timer for every
// take.
func BenchmarkDeadline(b *testing.B) {
	store, _ := memstore.New(memstore.Options{})
	over, err := failover.New(outward{store}, store, failover.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for _, bm := range []struct {
		name string
		in   weir.Store
	}{{"in-process", store}, {"shared", over}, {"context.WithTimeout", inTime{store}}} {
		b.Run(bm.name, func(b *testing.B) {
			d, err := weir.New(policyOf(limiter("l", "2000000000 per minute by ip")), bm.in, weir.Options{})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			keys, names := &fixedKeys{}, []string{"l"}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = d.Decide(ctx, weir.Request{Limiters: names, Keys: keys})
			}
		})
	}
}

// inTime is a store in this process that makes a timer for every take.
type inTime struct{ *memstore.Store }

func (s inTime) Take(ctx context.Context, charges []weir.Charge, receipt *weir.Receipt) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 100*time.Millisecond)
	defer cancel()
	return s.Store.Take(bounded, charges, receipt)
}
