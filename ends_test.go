package weir_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// The Reset of a request that spends nothing is the end of the span, too.
func TestAWindowByTheClockReportsTheEndOfItsSpan(t *testing.T) {
	l := limiter("l", "2 per minute by ip")
	l.Align = weir.AlignClock
	b := newBench(t, policyOf(l, limiter("c", "3 per calendar day by ip")))
	b.clock.Advance(20 * time.Second) // from a full minute; the day began 8 hours before that
	b.want(b.ask("l", weir.Peek, ip), "allowed 2 2 40 0")
	b.want(b.ask("l", 0, ip), "allowed 2 1 40 0")
	b.want(b.ask("l", 0, ip), "allowed 2 0 40 0")
	b.want(b.ask("l", 0, ip), "refused 2 0 40 40")
	b.clock.Advance(40 * time.Second)
	b.want(b.ask("l", 0, ip), "allowed 2 1 60 0")
	b.want(b.ask("c", 0, ip), "allowed 3 2 57540 0")
}

// A reload keeps an open window, with its reset. Another zone, day or align is another window.
func TestAReloadKeepsAWindowByTheClock(t *testing.T) {
	month := "9 per calendar month in Europe/Berlin from day 15 by ip"
	b := newBench(t, policyOf(limiter("l", month)))
	first := b.ask("l", 0, ip)
	reset := first.Binding().Reset
	for _, step := range []struct {
		spec      string
		remaining int64
		same      bool // the window
	}{
		{month, 7, true},
		{"5 per calendar month in Europe/Berlin from day 15 by ip", 2, true},
		{"9 per calendar month in Europe/Berlin from day 16 by ip", 8, false},
		{"9 per calendar month in Europe/Paris from day 15 by ip", 8, false},
		{"9 per 31 days by ip", 8, false},
		{month, 5, true},
	} {
		if err := b.d.Swap(policyOf(limiter("l", step.spec))); err != nil {
			t.Fatal(err)
		}
		s := b.ask("l", 0, ip)
		if got := s.Binding(); got.Remaining != step.remaining || step.same && got.Reset != reset {
			t.Errorf("%q: %d remain until %d, want %d; the window ended at %d", step.spec, got.Remaining, got.Reset, step.remaining, reset)
		}
	}
}

// A span ends while decisions are made, and even then one allocation is enough.
func TestAWindowByTheClockDoesNotAllocate(t *testing.T) {
	aligned := weir.Limiter{Name: "aligned", Align: weir.AlignClock, Windows: windows("2000000000 per minute by ip")}
	b := newBench(t, policyOf(aligned, limiter("month", "2000000000 per calendar month in Europe/Berlin from day 15 by ip")))
	keys := &fixedKeys{}
	for _, name := range []string{"aligned", "month"} {
		names := []string{name}
		if n := testing.AllocsPerRun(1000, func() {
			if d, err := b.d.Decide(context.Background(), weir.Request{Limiters: names, Keys: keys}); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}); n >= 1 {
			t.Errorf("%s: %v allocations a decision, want none", name, n)
		}
	}
}

func BenchmarkDecideByTheClock(b *testing.B) {
	for _, test := range []struct {
		name, spec string
		align      weir.Align
	}{
		{"request", "2000000000 per minute by ip", weir.AlignRequest},
		{"aligned", "2000000000 per minute by ip", weir.AlignClock},
		{"calendar", "2000000000 per calendar month in Europe/Berlin from day 15 by ip", weir.AlignRequest},
	} {
		b.Run(test.name, func(b *testing.B) {
			store, err := memstore.New(memstore.Options{})
			if err != nil {
				b.Fatal(err)
			}
			l := weir.Limiter{Name: "l", Align: test.align, Routes: []weir.Route{{Path: "/api/v1/widget/typing"}}, Windows: windows(test.spec)}
			d, err := weir.New(policyOf(l), store, weir.Options{})
			if err != nil {
				b.Fatal(err)
			}
			keys, ctx := &fixedKeys{}, context.Background()
			b.ReportAllocs()
			for b.Loop() {
				d.Decide(ctx, weir.Request{Method: "POST", Path: "/api/v1/widget/typing", Keys: keys})
			}
		})
	}
}

func TestEndsAreWrittenAndReadAsText(t *testing.T) {
	for _, w := range []weir.Window{
		{Limit: 1, Per: time.Minute},
		{Limit: 1, Calendar: weir.Calendar{Unit: weir.CalendarMonth, Zone: "Europe/Berlin", Day: 15}},
		{Limit: 1, Calendar: weir.Calendar{Unit: weir.CalendarDay}},
		{Limit: 1, Calendar: weir.Calendar{Unit: weir.CalendarWeek, Day: 7}},
	} {
		ends, err := weir.NewEnds(&weir.Limiter{Align: weir.AlignClock}, &w)
		if err != nil {
			t.Fatal(err)
		}
		text, err := ends.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var read weir.Ends
		if err := read.UnmarshalText(text); err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		for now := int64(1_800_000_000); now < 1_800_000_000+60*86400; now += 7919 {
			if got, want := read.After(now), ends.After(now); got != want {
				t.Fatalf("%q: at %d the window ends at %d, want %d", text, now, got, want)
			}
		}
		if read.Longest() != ends.Longest() {
			t.Errorf("%q: a window is at most %d s long, want %d", text, read.Longest(), ends.Longest())
		}
	}
	for _, text := range []string{
		"", "day", "every", "every 0", "every -1", "every 99999999999", "every x",
		"calendar", "calendar year", "calendar day in Nowhere", "calendar month from day 32",
	} {
		if err := new(weir.Ends).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
