package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// inspect returns "count/limit left in seconds" for each window, or that it is not
// open.
func (b *bench) inspect(limiter string, c weir.Keys) string {
	b.Helper()
	held, err := b.d.Inspect(context.Background(), limiter, c)
	if err != nil {
		b.Fatal(err)
	}
	var texts []string
	for _, h := range held {
		s := fmt.Sprintf("%d/%d, %d left", h.Count, h.Limit, h.Remaining)
		if h.Reset == 0 {
			s += ", not open"
		} else {
			s += fmt.Sprintf(", %d s", h.Reset-h.Now)
		}
		if h.Grant != (weir.Grant{}) {
			s += fmt.Sprintf(", granted for %d s over %d", h.Grant.Until-h.Now, h.Declared)
		}
		texts = append(texts, s)
	}
	return strings.Join(texts, "; ")
}

func (b *bench) holds(c weir.Keys, want string) {
	b.Helper()
	if got := b.inspect("l", c); got != want {
		b.Errorf("held %q, want %q", got, want)
	}
}

func (b *bench) unix(d time.Duration) int64 { return b.clock.Now().Add(d).Unix() }

func TestInspectSpendsNothing(t *testing.T) {
	b := newBench(t, policyOf(limiter("l", "3 per minute by ip", "5 per hour by ip")))
	b.holds(ip, "0/3, 3 left, not open; 0/5, 5 left, not open")
	b.ask("l", 0, ip)
	b.clock.Advance(10 * time.Second)
	b.holds(ip, "1/3, 2 left, 50 s; 1/5, 4 left, 3590 s")
	b.holds(ip, "1/3, 2 left, 50 s; 1/5, 4 left, 3590 s")
	if _, err := b.d.Inspect(context.Background(), "m", ip); !errors.Is(err, weir.ErrNoLimiter) {
		t.Errorf("an unknown limiter: %v", err)
	}
}

func TestAResetGivesTheWholeBudgetBackToOneCaller(t *testing.T) {
	b := newBench(t, policyOf(limiter("l", "2 per minute by ip", "5 per hour by ip"), limiter("m", "2 per minute by ip")))
	other := caller{"ip": "192.0.2.2"}
	for range 3 {
		b.ask("l", 0, ip)
		b.ask("l", 0, other)
		b.ask("m", 0, ip)
	}
	if err := b.d.Reset(context.Background(), "l", ip); err != nil {
		t.Fatal(err)
	}
	b.holds(ip, "0/2, 2 left, not open; 0/5, 5 left, not open")
	b.holds(other, "2/2, 0 left, 60 s; 2/5, 3 left, 3600 s")
	b.want(b.ask("m", 0, ip), "refused 2 0 60 60")
	b.clock.Advance(5 * time.Second)
	b.want(b.ask("l", 0, ip), "allowed 2 1 60 0") // a new window, starting now
}

func TestAGrantHoldsUntilItsSecond(t *testing.T) {
	b := newBench(t, policyOf(limiter("l", "2 per minute by ip", "50 per hour by ip")))
	for range 3 {
		b.ask("l", 0, ip)
	}
	if err := b.d.Grant(context.Background(), "l", ip, []int64{4, 0}, b.unix(90*time.Second)); err != nil {
		t.Fatal(err)
	}
	b.holds(ip, "2/4, 2 left, 60 s, granted for 90 s over 2; 2/50, 48 left, 3600 s")
	want := func(d weir.Decision, allowed bool, limit, remaining int64) {
		t.Helper()
		if s := d.Binding(); d.Allowed != allowed || s.Limit != limit || s.Remaining != remaining {
			t.Errorf("allowed %v, limit %d, remaining %d; want %v, %d, %d", d.Allowed, s.Limit, s.Remaining, allowed, limit, remaining)
		}
	}
	want(b.ask("l", 0, ip), true, 4, 1)
	want(b.ask("l", 0, ip), true, 4, 0)
	want(b.ask("l", 0, ip), false, 4, 0)
	b.clock.Advance(60 * time.Second) // the next window, still with the grant
	want(b.ask("l", 3, ip), true, 4, 1)
	b.clock.Advance(29 * time.Second)
	want(b.ask("l", weir.Peek, ip), true, 4, 1)
	// The grant ends during a window: the count exceeds the policy's limit.
	b.clock.Advance(time.Second)
	want(b.ask("l", weir.Peek, ip), true, 2, 0)
	want(b.ask("l", 0, ip), false, 2, 0)
	b.clock.Advance(30 * time.Second)
	want(b.ask("l", 0, ip), true, 2, 1)
	b.holds(ip, "1/2, 1 left, 60 s; 8/50, 42 left, 3480 s")
}

func TestAGrantCanBeRemovedAndCanLowerALimit(t *testing.T) {
	l := limiter("l", "10 per minute by ip")
	l.Overrides = []weir.Override{override("20 per minute for 192.0.2.1")}
	b := newBench(t, policyOf(l))
	keys := from("192.0.2.1", "")
	for _, limits := range [][]int64{{40}, {1}, nil} {
		if err := b.d.Grant(context.Background(), "l", keys, limits, b.unix(time.Hour)); err != nil {
			t.Fatal(err)
		}
		want := int64(20)
		if limits != nil {
			want = limits[0]
		}
		held, err := b.d.Inspect(context.Background(), "l", keys)
		if err != nil || held[0].Limit != want || held[0].Declared != 20 || !held[0].Override {
			t.Errorf("after %v: %+v, %v", limits, held[0], err)
		}
	}
}

func TestInvalidGrantsAreErrors(t *testing.T) {
	l := limiter("l", "10 per minute by ip", "50 per hour by ip")
	l.Cost = 5
	b := newBench(t, policyOf(l))
	soon := b.unix(time.Hour)
	for _, c := range []struct {
		limiter string
		limits  []int64
		until   int64
		want    string
	}{
		{"l", []int64{20, 0}, b.unix(0), "is allowed"},
		{"l", []int64{20, 0}, b.unix(-time.Hour), "is allowed"},
		{"l", []int64{20, 0}, math.MinInt64, "is allowed"},
		{"l", []int64{20, 0}, math.MaxInt64, "is allowed"},
		{"l", []int64{20, 0}, b.unix(400 * 24 * time.Hour), "a year from now"},
		{"l", []int64{math.MaxInt64, 0}, soon, "1 to 2147483647"},
		{"l", []int64{-1, 0}, soon, "1 to 2147483647"},
		{"l", []int64{4, 0}, soon, "less than the cost"},
		{"l", []int64{20}, soon, "1 limits for 2 windows"},
		{"l", []int64{20, 0, 0}, soon, "3 limits for 2 windows"},
		{"m", []int64{20}, soon, "no such limiter"},
	} {
		err := b.d.Grant(context.Background(), c.limiter, ip, c.limits, c.until)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("grant %v of %s until %d: %v, want %q", c.limits, c.limiter, c.until, err, c.want)
		}
	}
	b.holds(ip, "0/10, 10 left, not open; 0/50, 50 left, not open")
}

func TestAStoreThatIsNotAKeeperReturnsErrNoKeeper(t *testing.T) {
	d, err := weir.New(policyOf(limiter("l", "1 per minute by ip")), &slowFor{Store: newStore(t, storetest.StartManualClock()), scope: "nobody"}, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Reset(context.Background(), "l", ip); !errors.Is(err, weir.ErrNoKeeper) {
		t.Errorf("reset: %v", err)
	}
	if err := d.Grant(context.Background(), "l", ip, nil, 0); !errors.Is(err, weir.ErrNoKeeper) {
		t.Errorf("grant: %v", err)
	}
	if held, err := d.Inspect(context.Background(), "l", ip); err != nil || len(held) != 1 {
		t.Errorf("inspect: %v, %v", held, err)
	}
}

// Resets run concurrently with requests. Between two resets, at most the limit is
// admitted. Resets are counted before they happen, and admissions after, so the
// bound holds for any interleaving.
func TestResetsUnderLoad(t *testing.T) {
	const limit, resets, askers = 10, 50, 8
	b := newBench(t, policyOf(limiter("l", fmt.Sprint(limit, " per hour by ip"))))
	var admitted atomic.Int64
	var asking sync.WaitGroup
	stop := make(chan struct{})
	for range askers {
		asking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				d, err := b.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: ip})
				if err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	for n := range resets {
		for admitted.Load() < int64(n+1)*limit { // every unit of each budget is spent
		}
		if err := b.d.Reset(context.Background(), "l", ip); err != nil {
			t.Fatal(err)
		}
	}
	for admitted.Load() < (resets+1)*limit {
	}
	close(stop)
	asking.Wait()
	if got := admitted.Load(); got != (resets+1)*limit {
		t.Errorf("admitted %d, want %d: %d budgets of %d", got, (resets+1)*limit, resets+1, limit)
	}
}

// The test compares with a model of the limit in force at each moment.
func TestGrantsAndResetsAreExact(t *testing.T) {
	b := newBench(t, policyOf(limiter("l", "3 per minute by ip")))
	callers := 0 // each run has its own caller
	rapid.Check(t, func(t *rapid.T) {
		callers++
		ip := caller{"ip": fmt.Sprint(callers)}
		var used weir.Used
		var grant weir.Grant
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) {
				b.clock.Advance(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
			},
			"reset": func(t *rapid.T) {
				if err := b.d.Reset(context.Background(), "l", ip); err != nil {
					t.Fatal(err)
				}
				used = weir.Used{}
			},
			"grant": func(t *rapid.T) {
				grant = weir.Grant{Limit: rapid.Int64Range(1, 7).Draw(t, "limit"), Until: b.unix(time.Duration(rapid.IntRange(1, 90).Draw(t, "until")) * time.Second)}
				if err := b.d.Grant(context.Background(), "l", ip, []int64{grant.Limit}, grant.Until); err != nil {
					t.Fatal(err)
				}
			},
			"take back": func(t *rapid.T) {
				grant = weir.Grant{}
				if err := b.d.Grant(context.Background(), "l", ip, nil, 0); err != nil {
					t.Fatal(err)
				}
			},
			"ask": func(t *rapid.T) {
				now, limit := b.unix(0), int64(3)
				if grant.Limit > 0 && now < grant.Until {
					limit = grant.Limit
				}
				used = used.At(now, now+60)
				fits := used.Fits(1, limit)
				if fits {
					used = used.Spend(1, now+60)
				}
				d, err := b.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: ip})
				if s := d.Binding(); err != nil || d.Allowed != fits || s.Limit != limit || s.Remaining != max(limit-used.Count, 0) || s.Reset != used.Reset {
					t.Fatalf("%+v, %v; want allowed %v, limit %d, %+v", d, err, fits, limit, used)
				}
			},
		})
	})
}

func TestSharedWindowsAreNotResetForOneCaller(t *testing.T) {
	b := newBench(t, policyOf(limiter("l", "2 per minute by ip", "9 per minute by everyone")))
	ip := caller{"ip": "192.0.2.1", "everyone": ""}
	for range 2 {
		b.ask("l", 0, ip)
	}
	b.holds(ip, "2/2, 0 left, 60 s; 2/9, 7 left, 60 s")
	if err := b.d.Reset(context.Background(), "l", ip); err != nil {
		t.Fatal(err)
	}
	b.holds(ip, "0/2, 2 left, not open; 2/9, 7 left, 60 s")
	err := b.d.Grant(context.Background(), "l", ip, []int64{4, 18}, b.unix(time.Hour))
	if err == nil || !strings.Contains(err.Error(), "all callers share") {
		t.Errorf("a grant of a shared window: %v", err)
	}
	if err := b.d.Grant(context.Background(), "l", ip, []int64{4, 0}, b.unix(time.Hour)); err != nil {
		t.Fatal(err)
	}
	b.holds(ip, "0/4, 4 left, not open, granted for 3600 s over 2; 2/9, 7 left, 60 s")
}

func TestAZeroInAGrantChangesNothing(t *testing.T) {
	b := newBench(t, policyOf(limiter("l", "2 per minute by ip", "9 per hour by ip")))
	for _, limits := range [][]int64{{0, 18}, {4, 0}, {0, 0}} {
		if err := b.d.Grant(context.Background(), "l", ip, limits, b.unix(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	b.holds(ip, "0/4, 4 left, not open, granted for 3600 s over 2; 0/18, 18 left, not open, granted for 3600 s over 9")
}
