package watch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/watch"
)

// spender decides requests of limiter llm, and reports what they cost.
type spender struct {
	t *testing.T
	r *watch.Recorder
	d *weir.Decider
}

// begin admits a request that is charged 100 units, and returns what reports its cost.
func (s spender) begin(ip string) (cost func(units int64)) {
	s.t.Helper()
	scratch, caller := new(weir.Scratch), keys{"ip": ip}
	out, err := s.d.Decide(s.t.Context(), weir.Request{Limiters: []string{"llm"}, Keys: caller, Scratch: scratch})
	if err != nil || !out.Allowed {
		s.t.Fatalf("the request of %s is decided %+v, %v", ip, out, err)
	}
	b := out.Binding()
	who := append([]byte(nil), scratch.Who(&b)...)
	s.r.Observe(answer.Observation{Limiter: "llm", Window: b.Window, Outcome: answer.Admitted, Decision: &out, Who: who, Caller: caller})
	return func(units int64) {
		s.r.Spent(answer.Spending{Limiter: "llm", Decision: &out, Who: who, Reserved: 100, Used: units})
	}
}

func (s spender) spending() (list []string) {
	for _, c := range limiter(s.t, s.r.Snapshot(watch.Query{Top: 100}), "llm").Spending {
		list = append(list, fmt.Sprintf("%v of %v, %d in all", c.Units, c.Reserved, c.UnitsSince))
	}
	return list
}

func newSpender(t *testing.T, c *clock) spender {
	l := settling(t)
	l.InFlight = weir.InFlight{}
	l.Windows[0].Limit = 1 << 30
	r, d := newSettling(t, c, l)
	return spender{t, r, d}
}

func (s spender) want(when string, want ...string) {
	s.t.Helper()
	if got := s.spending(); fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("%s: the callers are\n%q, want\n%q", when, got, want)
	}
}

func TestCallersAreRankedByWhatTheirRequestsHaveCost(t *testing.T) {
	s := newSpender(t, newClock())
	var thrifty []func(int64)
	for range 3 {
		thrifty = append(thrifty, s.begin("192.0.2.1"))
	}
	lavish := s.begin("192.0.2.2")
	s.want("before anything is known", "300 of 300, 300 in all", "100 of 100, 100 in all")
	thrifty[0](10)
	thrifty[1](10)
	s.want("one is not known", "120 of 300, 120 in all", "100 of 100, 100 in all")
	thrifty[2](10)
	s.want("all of the first are known", "100 of 100, 100 in all", "30 of 300, 30 in all")
	lavish(250)
	s.want("the other has cost more", "250 of 100, 250 in all", "30 of 300, 30 in all")
}

// What was charged five minutes ago weighs half, and so does what is taken back of it.
func TestACostThatIsKnownLateTakesBackWhatIsLeft(t *testing.T) {
	c := newClock()
	s := newSpender(t, c)
	late := s.begin("192.0.2.1")
	c.move(5 * time.Minute)
	s.begin("192.0.2.1")(40)
	late(0)
	s.want("five minutes later", "40 of 150, 40 in all")
}

// A caller that lost its entry has none of the old request in the new one.
func TestACostFromBeforeTheEntryChangesNothing(t *testing.T) {
	c := newClock()
	s := newSpender(t, c)
	old := s.begin("192.0.2.1")
	c.move(10 * time.Hour)
	s.want("hours later")
	s.begin("192.0.2.1")
	old(0)
	s.want("after the old one", "100 of 100, 100 in all")
}

// An entry that was settled low and replaced does not let a caller come back too low.
func TestASettledEntryKeepsTheBoundOfTheList(t *testing.T) {
	s := newSpender(t, newClock())
	var costs []func(int64)
	for i := range 128 {
		costs = append(costs, s.begin(fmt.Sprintf("198.51.100.%d", i)))
	}
	s.begin("192.0.2.1") // replaces the first, whose 100 units are lost
	costs[5](0)          // is replaced next
	for range 3 {
		s.begin("198.51.100.0")
	}
	s.want("the first is back, with 400 units", append([]string{"400 of 300, 300 in all", "200 of 100, 100 in all"}, s.spending()[2:]...)...)
}
