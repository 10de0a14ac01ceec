package events_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/events"
	"github.com/weirlimit/weir/memstore"
)

// A count that other requests give back comes to its percentage again, and is reported once a
// window.
func TestAPercentageThatIsReachedAgainIsSentOnceAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: accepts}
		g := open(t, r)
		d := settling(t, g.Sender, "100 per minute by ip")
		for range 2 {
			for i := range int64(4) {
				end := begin(t, d, 48-2*i)
				begin(t, d, 20)(2) // 50 are used, or reserved by the other request
				end(0)
			}
			time.Sleep(time.Minute) // of the bubble's clock
		}
		synctest.Wait()
		g.close(time.Second)
		g.want(map[string]int64{"logged": 2, "delivered": 2, "repeated": 6})
	})
}

// Windows of units and of requests, with one length and key, are two.
func TestAWindowOfRequestsHasItsOwnEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: accepts}
		g := open(t, r)
		d := settling(t, g.Sender, "4 per minute by ip", "4 requests per minute by ip")
		for range 2 {
			begin(t, d, 1)(1)
		}
		synctest.Wait()
		g.close(time.Second)
		g.want(map[string]int64{"logged": 2, "delivered": 2})
		if all := strings.Join(r.bodies, ""); !strings.Contains(all, `"window":"4 requests per minute by ip"`) || !strings.Contains(all, `"window":"4 per minute by ip"`) {
			t.Errorf("the events are %s", all)
		}
	})
}

func settling(t *testing.T, s *events.Sender, windows ...string) *weir.Decider {
	t.Helper()
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	l := weir.Limiter{Name: "l", Notify: []int64{50}, Cost: 1, Actual: weir.Reading{Form: weir.ReadHeader, Name: "X-Cost"}}
	for _, text := range windows {
		w, err := weir.ParseWindow(text)
		if err != nil {
			t.Fatal(err)
		}
		l.Windows = append(l.Windows, w)
	}
	d, err := weir.New(weir.Policy{Limiters: []weir.Limiter{l}}, store, weir.Options{OnCrossed: s.Crossed})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// begin reserves some units, and returns a function that ends the request with what it has spent.
func begin(t *testing.T, d *weir.Decider, reserved int64) (end func(spent int64)) {
	t.Helper()
	s := new(weir.Scratch)
	if _, err := d.Decide(t.Context(), weir.Request{Limiters: []string{"l"}, Cost: reserved, Keys: address("192.0.2.1"), Scratch: s}); err != nil {
		t.Fatal(err)
	}
	return func(spent int64) {
		d.Spent(t.Context(), s, spent, nil)
		d.End(t.Context(), s)
	}
}
