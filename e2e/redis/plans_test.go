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
