package redis_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// A subscriber is a caller with a token that has a plan.
type subscriber struct{ plan string }

func (subscriber) AppendKey(dst []byte, source string) ([]byte, bool) {
	return append(dst, source...), true
}

func (s subscriber) Plan(string) (plan string, known bool) { return s.plan, true }

// A remembered refusal was made under one limit, and another plan has another: an upgrade is
// admitted at once, and a downgrade is refused with nothing left.
func TestAnUpgradePassesARefusalThatIsRemembered(t *testing.T) {
	t.Parallel()
	store := open(t, redisstore.Options{Addresses: []string{redistest.Start(t).Addr()}})
	window, err := weir.ParseWindow("3 per hour by token")
	if err != nil {
		t.Fatal(err)
	}
	d, err := weir.New(weir.Policy{Limiters: []weir.Limiter{{Name: "api", Windows: []weir.Window{window}, Plans: weir.Plans{
		By: "token", List: []weir.Plan{{Name: "gold", Rates: []weir.Rate{{Limit: 10, Per: time.Hour}}}},
	}}}}, store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(plan string, allowed bool, count, remaining int64) {
		t.Helper()
		got, err := d.Decide(t.Context(), weir.Request{Limiters: []string{"api"}, Keys: subscriber{plan}})
		if err != nil {
			t.Fatal(err)
		}
		if b := got.Binding(); got.Allowed != allowed || b.Count != count || b.Remaining != remaining {
			t.Fatalf("plan %q: allowed %v with %d spent and %d left, want %v, %d and %d", plan, got.Allowed, b.Count, b.Remaining, allowed, count, remaining)
		}
	}
	for i := range int64(3) {
		ask("free", true, i+1, 2-i)
	}
	for store.Stats().Remembered == 0 { // a refusal is not remembered if its reply took long
		ask("free", false, 3, 0)
	}
	ask("gold", true, 4, 6)
	for i := range int64(6) {
		ask("gold", true, 5+i, 5-i)
	}
	for before := store.Stats().Remembered; store.Stats().Remembered == before; {
		ask("gold", false, 10, 0)
	}
	ask("free", false, 10, 0)
}

// A posted request reports its cost in a body, and counts how often that is read.
type posted struct{ reads *int }

func (p posted) Reported(weir.Reading) (int64, bool) { *p.reads++; return 7, true }
func (p posted) Waits(weir.Reading) bool             { return true }

// A request that is refused before its body is read may be refused from memory, and the budget that
// comes back is found.
func TestAnUnreadRequestIsRefusedFromMemory(t *testing.T) {
	t.Parallel()
	store := open(t, redisstore.Options{Addresses: []string{redistest.Start(t).Addr()}})
	window, err := weir.ParseWindow("25 per hour by token")
	if err != nil {
		t.Fatal(err)
	}
	slots, err := weir.ParseInFlight("9 by token")
	if err != nil {
		t.Fatal(err)
	}
	from := weir.Reading{Form: weir.ReadJSON, Name: "n"}
	for name, inFlight := range map[string]weir.InFlight{"windows": {}, "windows-and-slots": slots} {
		d, err := weir.New(weir.Policy{Limiters: []weir.Limiter{{
			Name: name, Windows: []weir.Window{window}, InFlight: inFlight, Cost: 20, Reserve: weir.Reserve{From: from, Plus: 5},
			Penalty: weir.Penalty{After: weir.MaxLimit, Per: time.Hour, For: time.Hour},
		}}}, store, weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ask := func(allowed bool, count int64) {
			t.Helper()
			reads := 0
			var s weir.Scratch
			got, err := d.Decide(t.Context(), weir.Request{Limiters: []string{name}, Keys: subscriber{}, Reporter: posted{&reads}, Scratch: &s})
			if err != nil {
				t.Fatal(err)
			}
			if b := got.Binding(); got.Allowed != allowed || b.Count != count || (reads > 0) != allowed {
				t.Fatalf("%s: allowed %v with %d spent, the body read %d times, want %v with %d", name, got.Allowed, b.Count, reads, allowed, count)
			}
			d.End(t.Context(), &s)
		}
		ask(true, 12)
		ask(true, 24)
		if inFlight.Limit > 0 {
			ask(false, 24)
		} else {
			for before := store.Stats().Remembered; store.Stats().Remembered < before+3; {
				ask(false, 24)
			}
		}
		if err := d.Reset(t.Context(), name, subscriber{}); err != nil {
			t.Fatal(err)
		}
		ask(true, 12)
	}
}
