package weir_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// show returns what Usage reports, one line for each window.
func show(u weir.Usage) (lines []string) {
	for _, w := range u.Windows {
		line := fmt.Sprintf("%s %s: %d of %d, %d left, %d s by %v", w.Limiter.Name, w.Window, w.Count, w.Limit, w.Remaining, w.Reset-w.Now, w.CountedBy)
		switch {
		case w.Unknown:
			line = fmt.Sprintf("%s %s: unknown of %d", w.Limiter.Name, w.Window, w.Limit)
		case w.Missing != "":
			line = fmt.Sprintf("%s %s: no %s %v", w.Limiter.Name, w.Window, w.Missing, w.CountedBy)
		case w.Local:
			line += ", local"
		case w.Exempt:
			line += ", exempt"
		case w.Everyone:
			line += ", everyone"
		}
		lines = append(lines, line)
	}
	return lines
}

func TestUsageShowsTheCallersWindowsAndSpendsNothing(t *testing.T) {
	vip := limiter("vip", "2 per minute by ip")
	vip.Exempt = []weir.Who{whom("token vip")}
	cheap := limiter("cheap", "10 per minute by token or ip")
	cheap.Overrides = []weir.Override{override("50 per minute for token vip")}
	tried := limiter("tried", "3 per minute by ip")
	tried.Mode = weir.Shadow
	b := newBench(t, policyOf(limiter("api", "5 per minute by ip", "100 per hour by ip"), cheap, vip, tried,
		limiter("all", "7 per minute by everyone"), limiter("keyed", "4 per minute by ip+header:X-Api-Key")))
	me, other := caller{"ip": "1", "token": "vip", "everyone": ""}, caller{"ip": "2", "everyone": ""}
	for range 2 {
		b.ask("api", 0, me)
		b.ask("vip", 0, me)
	}
	for range 3 {
		b.ask("api", 0, other)
		b.ask("all", 0, other)
	}
	want := []string{
		"api 5 per minute by ip: 2 of 5, 3 left, 60 s by [ip]",
		"api 100 per hour by ip: 2 of 100, 98 left, 3600 s by [ip]",
		"cheap 10 per minute by token or ip: 0 of 50, 50 left, 60 s by [token]",
		"vip 2 per minute by ip: 2 of 2, 2 left, 60 s by [ip], exempt",
		"all 7 per minute by everyone: 3 of 7, 4 left, 60 s by [everyone], everyone",
		"keyed 4 per minute by ip+header:X-Api-Key: no header:X-Api-Key []",
	}
	for range 3 { // it is the same each time, since nothing is spent
		if got := show(b.d.Usage(t.Context(), me, nil)); !slices.Equal(got, want) {
			t.Fatalf("got %q\nwant %q", got, want)
		}
	}
	only := func(l *weir.Limiter) bool { return l.Name == "cheap" }
	if got := show(b.d.Usage(t.Context(), me, only)); !slices.Equal(got, want[2:3]) {
		t.Errorf("only one is visible: %q", got)
	}
}

// A header that the caller could send and did not leaves its count unknown; a
// credential that it lacks does not, because it is then counted by address.
func TestUsageCountsByAddressWithoutACredential(t *testing.T) {
	b := newBench(t, policyOf(limiter("api", "5 per minute by session")))
	b.ask("api", 0, ip)
	if got := show(b.d.Usage(t.Context(), ip, nil)); !slices.Equal(got, []string{"api 5 per minute by session: 1 of 5, 4 left, 60 s by [ip]"}) {
		t.Errorf("got %q", got)
	}
}

func TestUsageIsBounded(t *testing.T) {
	var p weir.Policy
	for i := range weir.MaxUsage {
		p.Limiters = append(p.Limiters, limiter(fmt.Sprintf("l%d", i), "1 per second by ip", "5 per minute by ip"))
	}
	store := &counting{Store: newBench(t, p).store(t)}
	d, err := weir.New(p, store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if u := d.Usage(t.Context(), ip, nil); len(u.Windows) != weir.MaxUsage || u.LeftOut != weir.MaxUsage || store.takes != weir.MaxUsage/2 {
		t.Errorf("%d windows, %d left out, %d takes", len(u.Windows), u.LeftOut, store.takes)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if u := d.Usage(ended, ip, nil); len(u.Windows) != 0 || u.LeftOut != 2*weir.MaxUsage {
		t.Errorf("after the end of its time: %d windows, %d left out", len(u.Windows), u.LeftOut)
	}
}

func (b *bench) store(t *testing.T) *memstore.Store { return newStore(t, b.clock) }

// counting counts the takes.
type counting struct {
	weir.Store
	takes int
}

func (c *counting) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	c.takes++
	return c.Store.Take(ctx, charges, r)
}

// If nothing answers for the store, no count is made up.
func TestUsageOfASilentStoreIsUnknown(t *testing.T) {
	d, err := weir.New(policyOf(limiter("l", "3 per minute by ip")), silent{}, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := show(d.Usage(t.Context(), ip, nil)); !slices.Equal(got, []string{"l 3 per minute by ip: unknown of 3"}) {
		t.Errorf("got %q", got)
	}
}

// local is a store around a store, and counts in this process as in an outage.
type local struct {
	weir.Store
	outcome weir.Outcome
}

func (l *local) Unwrap() weir.Store { return l.Store }

func (l *local) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	err := l.Store.Take(ctx, charges, r)
	r.Outcome = l.outcome
	return err
}

// In an outage, a count of this process is marked as one.
func TestUsageMarksLocalCounts(t *testing.T) {
	p := policyOf(limiter("l", "3 per minute by ip"))
	for outcome, want := range map[weir.Outcome]string{
		weir.Counted:          "l 3 per minute by ip: 0 of 3, 3 left, 60 s by [ip]",
		weir.CountedLocally:   "l 3 per minute by ip: 0 of 3, 3 left, 60 s by [ip], local",
		weir.AllowedUncounted: "l 3 per minute by ip: 0 of 3, 3 left, 60 s by [ip], local",
		weir.StoreUnavailable: "l 3 per minute by ip: unknown of 3",
	} {
		d, err := weir.New(p, &local{newBench(t, p).store(t), outcome}, weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := show(d.Usage(t.Context(), ip, nil)); !slices.Equal(got, []string{want}) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
