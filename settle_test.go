package weir_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// A desk is a decider whose requests are settled.
type desk struct {
	*bench
	store    weir.Settler
	settled  []string // "limiter reserved used", and what is special
	shadows  []string // "limiter allowed"
	compared []string // "candidate allowed"
}

func newDesk(t testing.TB, p weir.Policy, wrap func(weir.Settler) weir.Store) *desk {
	t.Helper()
	k := &desk{bench: &bench{TB: t, clock: storetest.StartManualClock()}}
	k.store = newStore(t, k.clock)
	var store weir.Store = k.store
	if wrap != nil {
		store = wrap(k.store)
	}
	var err error
	k.d, err = weir.New(p, store, weir.Options{
		OnSettled: k.onSettled,
		OnShadow: func(s weir.Shadowed) {
			k.shadows = append(k.shadows, fmt.Sprint(s.Limiter.Name, " ", !s.Skipped && s.Decision.Allowed))
		},
		OnCandidate: func(c weir.Compared) { k.compared = append(k.compared, fmt.Sprint(c.Candidate.Allowed)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *desk) onSettled(s weir.Settled) {
	text := fmt.Sprint(s.Limiter.Name, " ", s.Reserved, " ", s.Used)
	if s.Lost > 0 {
		text += fmt.Sprint(" lost ", s.Lost)
	}
	if s.Unreported {
		text += " unreported"
	}
	if s.Shadow {
		text += " shadow"
	}
	k.settled = append(k.settled, text)
}

// wantSettled compares the reports since its last call.
func (k *desk) wantSettled(want string) {
	k.Helper()
	if got := strings.Join(k.settled, "; "); got != want {
		k.Errorf("settled %q, want %q", got, want)
	}
	k.settled = nil
}

// A visit is one request that is settled.
type visit struct {
	*desk
	scratch weir.Scratch
	got     weir.Decision
}

func (k *desk) visit(names ...string) *visit {
	k.Helper()
	v := &visit{desk: k}
	v.again(names...)
	return v
}

func (v *visit) again(names ...string) {
	v.Helper()
	if err := v.d.DecideInto(v.Context(), &weir.Request{Limiters: names, Keys: me, Scratch: &v.scratch}, &v.got); err != nil {
		v.Fatal(err)
	}
}

func (v *visit) answered(status int) { v.d.Answered(v.Context(), &v.scratch, status, &v.got) }
func (v *visit) spent(units int64)   { v.d.Spent(v.Context(), &v.scratch, units, &v.got) }
func (v *visit) end()                { v.d.End(v.Context(), &v.scratch) }

// counts compares "count of window 1, of window 2 …" of a limiter.
func (k *desk) counts(limiter, want string) {
	k.Helper()
	states, err := k.d.Inspect(k.Context(), limiter, me)
	if err != nil {
		k.Fatal(err)
	}
	var got []string
	for _, s := range states {
		got = append(got, fmt.Sprint(s.Count))
	}
	if text := strings.Join(got, " "); text != want {
		k.Errorf("%s counts %q, want %q", limiter, text, want)
	}
}

// me is the caller of all requests.
var me = from(ip["ip"], "")

var fromTokens = weir.Reading{Form: weir.ReadJSON, Name: "usage.total_tokens"}

// priced returns a limiter whose answer tells the cost of a request.
func priced(name string, cost int64, specs ...string) weir.Limiter {
	l := limiter(name, specs...)
	l.Cost, l.Actual = cost, fromTokens
	return l
}

// onlyFailures counts requests that are answered 401.
func onlyFailures(l weir.Limiter) weir.Limiter {
	l.Count = weir.Count{Statuses: []weir.Statuses{{Low: 401, High: 401}}}
	return l
}

func inFlight(l weir.Limiter, limit int64) weir.Limiter {
	l.InFlight = weir.InFlight{Limit: limit, Key: weir.Key{{"ip"}}}
	return l
}

func TestWhatIsNotCountedIsGivenBack(t *testing.T) {
	k := newDesk(t, policyOf(onlyFailures(limiter("login", "2 per minute by ip", "9 requests per hour by ip"))), nil)
	for range 4 {
		v := k.visit("login")
		if a := v.scratch.Awaits(); a != weir.AwaitsStatus {
			t.Fatalf("it awaits %b", a)
		}
		k.want(v.got, "allowed 2 1 60 0")
		v.answered(200)
		k.want(v.got, "allowed 2 2 60 0")
		k.wantSettled("login 1 0")
		v.answered(401)
		v.spent(5)
		v.end()
		k.wantSettled("")
	}
	for range 2 {
		v := k.visit("login")
		v.answered(401)
		v.end()
		k.wantSettled("")
	}
	v := k.visit("login")
	if err := v.d.DecideInto(t.Context(), &weir.Request{Limiters: []string{"login"}, Keys: me, Cost: weir.Peek, Scratch: &v.scratch}, &v.got); err != nil || v.scratch.Awaits() != 0 || v.scratch.CanSettle() {
		t.Errorf("a request that spends nothing can be settled, or %v", err)
	}
	v.again("login")
	k.want(v.got, "refused 2 0 60 60")
	if v.scratch.Awaits() != 0 || v.scratch.CanSettle() {
		t.Error("a refused request awaits something")
	}
	v.answered(200)
	k.counts("login", "2 2")
}

func TestACostIsSettledOnce(t *testing.T) {
	k := newDesk(t, policyOf(priced("chat", 40, "100 per minute by ip", "9 requests per hour by ip", "1000 per day by ip")), nil)
	v := k.visit("chat")
	if v.scratch.Awaits() != weir.AwaitsCost || v.scratch.Reading() != fromTokens {
		t.Errorf("it awaits %b, from %v", v.scratch.Awaits(), v.scratch.Reading())
	}
	v.d.SpentFrom(t.Context(), &v.scratch, weir.Reading{Form: weir.ReadHeader, Name: "X-Cost"}, 1, &v.got)
	k.wantSettled("")
	v.spent(-1)
	v.d.SpentFrom(t.Context(), &v.scratch, fromTokens, 25, &v.got)
	k.wantSettled("chat 40 25")
	v.spent(3)
	v.end()
	v.spent(3)
	k.wantSettled("")
	k.counts("chat", "25 1 25")
	if n := v.got.Standings(); n[0].Count == 40 {
		t.Errorf("the standings have the reservation: %+v", n)
	}
	v.again("chat")
	v.spent(90) // beyond the limit
	k.wantSettled("chat 40 90")
	k.counts("chat", "115 2 115")
	v.again("chat")
	k.want(v.got, "refused 100 0 60 60")
	k.clock.Advance(time.Minute)
	v.again("chat")
	v.again("chat") // the next use ends the request before
	k.wantSettled("chat 40 40 unreported")
	v.spent(40)
	k.wantSettled("chat 40 40")
	k.counts("chat", "80 4 195")
	k.clock.Advance(time.Minute)
	v.again("chat")
	v.spent(1 << 62)
	k.counts("chat", fmt.Sprint(weir.MaxLimit, " 5 ", weir.MaxLimit))
}

// Of several limiters, only those are settled that have told that they would be.
func TestACostOfOneLimiterIsNotThatOfAnother(t *testing.T) {
	k := newDesk(t, policyOf(limiter("calls", "9 per minute by ip"), priced("chat", 40, "100 per minute by ip"), onlyFailures(limiter("login", "5 per minute by ip"))), nil)
	v := k.visit("calls", "chat", "login")
	v.answered(200)
	v.spent(25)
	v.end()
	k.wantSettled("login 1 0; chat 40 25")
	k.counts("calls", "1")
	k.counts("chat", "25")
	k.counts("login", "0")
	v.again("calls")
	v.spent(3) // a handler knows better
	k.counts("calls", "4")
}

func TestSlotsAreHeldUntilTheEnd(t *testing.T) {
	k := newDesk(t, policyOf(inFlight(limiter("l", "9 per minute by ip"), 2)), nil)
	a, b := k.visit("l"), k.visit("l")
	if a.scratch.Awaits() != weir.AwaitsEnd {
		t.Errorf("it awaits %b", a.scratch.Awaits())
	}
	k.want(b.got, "allowed 9 7 60 0") // the headers describe the window
	c := k.visit("l")
	k.want(c.got, "refused 2 0 1 1")
	k.counts("l", "2 2")
	c.end()
	k.counts("l", "2 2")
	a.answered(200)
	a.spent(1)
	k.counts("l", "2 2")
	a.end()
	a.end()
	k.counts("l", "2 1")
	b.again("l") // ends the request before
	k.counts("l", "3 1")
}

// An answer that is complete gives its slot back, and its cost can still be told.
func TestAServedRequestHoldsNoSlot(t *testing.T) {
	k := newDesk(t, policyOf(inFlight(limiter("l", "9 per minute by ip"), 2)), nil)
	a, b := k.visit("l"), k.visit("l")
	k.counts("l", "2 2")
	for range 2 {
		a.d.Served(t.Context(), &a.scratch)
		k.counts("l", "2 1")
	}
	a.spent(3)
	k.counts("l", "4 1")
	a.end()
	k.counts("l", "4 1")
	b.end()
	k.counts("l", "4 0")
}

func (v *visit) againFails(names ...string) {
	v.Helper()
	if err := v.d.DecideInto(v.Context(), &weir.Request{Limiters: names, Keys: me, Scratch: &v.scratch}, &v.got); err == nil {
		v.Error("it was decided")
	}
}

func TestASlotNeedsAScratch(t *testing.T) {
	held := inFlight(limiter("l", "9 per minute by ip"), 2)
	denies := limiter("denies", "9 per minute by ip")
	denies.Deny = []weir.Who{whom(ip["ip"])}
	k := newDesk(t, policyOf(held, denies, shadowOf(inFlight(limiter("s", "9 per minute by ip"), 2))), nil)
	if _, err := k.d.Decide(t.Context(), weir.Request{Limiters: []string{"l"}, Keys: me}); err == nil {
		t.Error("a slot would be held forever")
	}
	k.counts("l", "0 0")
	k.ask("l", weir.Peek, ip)
	if d, err := k.d.Decide(t.Context(), weir.Request{Limiters: []string{"l", "denies"}, Keys: me}); err != nil || d.Outcome != weir.Denied {
		t.Errorf("%+v, %v", d, err)
	}
	for range 3 { // a trial ends at once
		k.ask("s", 0, ip)
	}
	k.counts("s", "3 0")
	v := k.visit("l")
	v.againFails("unknown") // and still ends the request before
	k.counts("l", "1 0")
}

func TestAnExemptCallerIsSettledAndNeverRefused(t *testing.T) {
	l := inFlight(priced("l", 5, "5 per minute by ip"), 1)
	l.Exempt = []weir.Who{whom(ip["ip"])}
	k := newDesk(t, policyOf(l), nil)
	a, b := k.visit("l"), k.visit("l")
	if !a.got.Allowed || !b.got.Allowed || b.got.Binding().Remaining != 5 {
		t.Errorf("%+v", b.got)
	}
	k.counts("l", "10 2")
	a.spent(1)
	if a.got.Binding().Remaining != 5 {
		t.Errorf("settled: %+v", a.got.Binding())
	}
	b.spent(weir.MaxLimit)
	k.counts("l", fmt.Sprint(weir.MaxLimit, " 2"))
	c := k.visit("l") // the count goes no further
	if !c.got.Allowed || c.scratch.Awaits() != 0 {
		t.Errorf("%+v", c.got)
	}
	a.end()
	b.end()
	c.end()
	k.counts("l", fmt.Sprint(weir.MaxLimit, " 0"))
}

// A caller that one limiter of a request exempts has its whole limit there, before and after it is
// settled.
func TestAnExemptCallerOfOneLimiterKeepsItsStanding(t *testing.T) {
	free := priced("free", 5, "5 per minute by ip")
	free.Exempt = []weir.Who{whom(ip["ip"])}
	k := newDesk(t, policyOf(free, priced("paid", 5, "100 per minute by ip")), nil)
	k.visit("free")
	v := k.visit("free", "paid")
	k.want(v.got, "allowed 5 5 60 0")
	v.spent(4)
	k.want(v.got, "allowed 5 5 60 0")
	k.counts("free", "9")
	k.counts("paid", "4")
}

// A request is settled under the policy that has decided it.
func TestAPolicyMayBeReplacedBeforeTheEnd(t *testing.T) {
	k := newDesk(t, policyOf(onlyFailures(inFlight(priced("l", 5, "10 per minute by ip"), 2))), nil)
	a, b := k.visit("l"), k.visit("l")
	if err := k.d.Swap(policyOf(inFlight(limiter("l", "3 per minute by ip"), 1))); err != nil {
		t.Fatal(err)
	}
	k.want(k.visit("l").got, "refused 3 0 60 60")
	a.answered(200)
	b.answered(401)
	b.spent(1)
	k.counts("l", "1 2")
	a.end()
	b.end()
	k.counts("l", "1 0")
	k.want(k.visit("l").got, "allowed 3 1 60 0")
}

func TestSettlingARequestAllocatesNothing(t *testing.T) {
	p := policyOf(onlyFailures(inFlight(priced("l", 5, "1000 per minute by ip"), 2)))
	clock := storetest.StartManualClock()
	d, err := weir.New(p, newStore(t, clock), weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var s weir.Scratch
	var out weir.Decision
	r := weir.Request{Limiters: []string{"l"}, Keys: weir.Keys(me), Scratch: &s}
	for _, status := range []int{200, 401} {
		n := testing.AllocsPerRun(200, func() {
			if err := d.DecideInto(context.Background(), &r, &out); err != nil || !out.Allowed {
				t.Fatalf("%+v, %v", out, err)
			}
			d.Answered(context.Background(), &s, status, &out)
			d.Spent(context.Background(), &s, 0, &out)
			d.End(context.Background(), &s)
		})
		if n > 0 {
			t.Errorf("answered %d: %v allocations", status, n)
		}
	}
}
