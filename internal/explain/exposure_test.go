package explain

import (
	"context"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/policyfile"
)

// A worst caller tries every way to time its requests and finds the span in which most of them
// pass. Its clock has two instants a second, so that spans begin at seconds and within them. It
// asks the arithmetic that every store computes.
type worstCaller struct {
	windows []weir.Window
	cost    int64
	settles bool // it may have a request given back at once, which leaves its windows open
	best    map[attempt]int64
}

// A moment is the state of its windows, with resets relative to the current second.
type moment struct {
	used [3]weir.Used
	half bool // the second instant of its second
}

type attempt struct {
	moment
	instants int64 // left of the span, including the current one
}

const someSecond = 1000

// send returns the moment after one more request; ok if it passes.
func (c *worstCaller) send(m moment) (after moment, ok bool) {
	for i, w := range c.windows {
		u := m.used[i]
		if u.Reset > 0 {
			u.Reset += someSecond
		}
		u = u.At(someSecond, someSecond+int64(w.Per.Seconds()))
		if !u.Fits(c.cost, w.Limit) {
			return m, false
		}
		u = u.Spend(c.cost, someSecond+int64(w.Per.Seconds()))
		u.Reset -= someSecond
		m.used[i] = u
	}
	return m, true
}

// sendUncounted returns the moment after one more request that is given back; ok if it passes.
func (c *worstCaller) sendUncounted(m moment) (after moment, ok bool) {
	if !c.settles {
		return m, false
	}
	after, ok = c.send(m)
	for i := range c.windows {
		if ok {
			after.used[i] = after.used[i].Settle(-c.cost)
		}
	}
	return after, ok
}

// wait returns the moment half a second later.
func (c *worstCaller) wait(m moment) moment {
	if m.half = !m.half; m.half {
		return m
	}
	for i := range c.windows {
		if m.used[i].Reset--; m.used[i].Reset <= 0 {
			m.used[i] = weir.Used{}
		}
	}
	return m
}

// moments returns every moment that can be reached.
func (c *worstCaller) moments() map[moment]bool {
	seen := map[moment]bool{{}: true}
	for next := []moment{{}}; len(next) > 0; {
		m := next[0]
		next = next[1:]
		after := []moment{c.wait(m)}
		if sent, ok := c.send(m); ok {
			after = append(after, sent)
		}
		if sent, ok := c.sendUncounted(m); ok {
			after = append(after, sent)
		}
		for _, a := range after {
			if !seen[a] {
				seen[a] = true
				next = append(next, a)
			}
		}
	}
	return seen
}

// most returns the most requests that pass from a moment on.
func (c *worstCaller) most(a attempt) int64 {
	if a.instants == 0 {
		return 0
	}
	if n, ok := c.best[a]; ok {
		return n
	}
	n := c.most(attempt{c.wait(a.moment), a.instants - 1})
	if sent, ok := c.send(a.moment); ok {
		n = max(n, 1+c.most(attempt{sent, a.instants}))
	}
	if sent, ok := c.sendUncounted(a.moment); ok && sent != a.moment {
		n = max(n, c.most(attempt{sent, a.instants}))
	}
	c.best[a] = n
	return n
}

func (c *worstCaller) inAnySpan(span int64) (n int64) {
	for m := range c.moments() {
		n = max(n, c.most(attempt{m, 2 * span}))
	}
	return n
}

// No caller gets more requests through in any span than Exposure returns, however it times them
// (D1, D3, D7), also if only some of them are counted. If the figure is exact, some caller gets it.
// The figure of a single window always is.
func TestNoCallerExceedsItsExposureAndSomeCallerReachesIt(t *testing.T) {
	reached := 0 // by a caller under several windows
	rapid.Check(t, func(t *rapid.T) {
		l := weir.Limiter{Cost: rapid.Int64Range(1, 3).Draw(t, "cost")}
		for range rapid.IntRange(1, 3).Draw(t, "windows") {
			l.Windows = append(l.Windows, weir.Window{
				Limit: l.Cost*rapid.Int64Range(1, 4).Draw(t, "limit") + rapid.Int64Range(0, l.Cost-1).Draw(t, "rest"),
				Per:   time.Duration(rapid.Int64Range(1, 6).Draw(t, "seconds")) * time.Second,
				Key:   weir.Key{{identity.IP}},
			})
		}
		settles := rapid.Bool().Draw(t, "settles")
		if settles {
			l.Count = weir.Count{Statuses: []weir.Statuses{{Low: 401, High: 401}}}
		}
		span := rapid.Int64Range(1, 9).Draw(t, "span")
		said := Exposure(&l, Parties(weir.Policy{})[0], span)
		worst := &worstCaller{l.Windows, l.Cost, settles, map[attempt]int64{}}
		got := worst.inAnySpan(span)
		if got > said.Requests {
			t.Fatalf("%d requests pass in %d s, more than the %d that are said: %v, cost %d", got, span, said.Requests, l.Windows, l.Cost)
		}
		if said.Exact && got != said.Requests || !said.Exact && len(l.Windows) == 1 {
			t.Fatalf("%d requests pass in %d s at the most, and %d are said (exact: %v): %v, cost %d", got, span, said.Requests, said.Exact, l.Windows, l.Cost)
		}
		if len(l.Windows) > 1 && said.Exact {
			reached++
		}
	})
	if reached == 0 {
		t.Error("no limiter with several windows had an exact figure")
	}
}

// The store itself shows the figure of the contract's leads, 60 in 60 s: all of one window late in
// its first second, and all of the next one early in its first second, 59.001 s later.
func TestTheWorstMinuteOfALimitOfThirtyIsSixty(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	now := start.Add(999 * time.Millisecond)
	store, err := memstore.New(memstore.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	d, err := weir.New(policyfile.Contract(), store, weir.Options{Sources: identity.Sources()})
	if err != nil {
		t.Fatal(err)
	}
	passed := int64(0)
	for _, at := range []time.Duration{999 * time.Millisecond, time.Minute - 1, time.Minute, time.Minute + 998*time.Millisecond} {
		now = start.Add(at)
		for range 40 {
			got, err := d.Decide(context.Background(), weir.Request{Method: "POST", Path: "/api/v1/widget/leads", Keys: oneVisitor{}})
			if err != nil {
				t.Fatal(err)
			}
			if got.Allowed {
				passed++
			}
		}
	}
	limiter := d.Match("POST", "", "/api/v1/widget/leads").Limiter()
	if said := Exposure(limiter, Parties(weir.Policy{})[1], 60); passed != 60 || said == nil || *said != (Bound{Requests: 60, Exact: true}) {
		t.Errorf("%d passed in 60 s, and %v is said", passed, said)
	}
}

// A window bounds the parties whose requests all have one value of its key.
func TestAWindowBoundsThoseItCountsTogether(t *testing.T) {
	for key, bounded := range map[string]string{ // of address, session, token, everybody
		"ip":                       "a---",
		"ip+agent":                 "----", // a caller can make up agents
		"agent or ip":              "----",
		"session or ip":            "-s--", // an address can have any number of sessions
		"session":                  "-s--", // the same
		"ip or session":            "a---", // every caller has an address
		"token or ip":              "--t-",
		"token or session or ip":   "-st-",
		"ip+session":               "----", // a session can move between addresses
		"session+token":            "----",
		"everyone":                 "aste",
		"session or everyone":      "-st-", // a token carries no session
		"token or session+session": "-s--",
	} {
		t.Run(key, func(t *testing.T) {
			k, err := weir.ParseKey(key)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for i, p := range Parties(weir.Policy{}) {
				if p.bounds(k) {
					got += "aste"[i : i+1]
				} else {
					got += "-"
				}
			}
			if got != bounded {
				t.Errorf("%s bounds %s, want %s", key, got, bounded)
			}
		})
	}
}

// All sessions with one value of a claim are a party if the policy counts by the claim. A window
// bounds them if it counts them together, and one by a claim does not bound a session, which may
// lack the claim and be counted by an address.
func TestAWindowByAClaimBoundsTheSessionsThatHaveIt(t *testing.T) {
	for key, bounded := range map[string]string{ // of address, session, token, the claim, everybody
		"claim:org":                      "---c-",
		"claim:org or ip":                "---c-",
		"claim:org or session":           "-s-c-",
		"session or claim:org":           "-s---", // a claim may be of many sessions
		"token or claim:org":             "--tc-", // a caller has one credential
		"claim:org or token or ip":       "--tc-",
		"ip+claim:org":                   "-----",
		"ip or claim:org":                "a----",
		"claim:org or everyone":          "-stc-",
		"header:X-A+claim:org":           "-----",
		"claim:org or claim:org":         "---c-",
		"claim:org or session+claim:org": "---c-",
	} {
		if got := boundedBy(policyBy(t, key)); got != bounded {
			t.Errorf("%s bounds %s, want %s", key, got, bounded)
		}
	}
	p := policyBy(t, "claim:org")
	for requires, served := range map[string]bool{"": true, "session": true, "token": false} {
		p.Limiters[0].Requires = requires
		if got := Parties(p)[3].Served(&p.Limiters[0]); got != served {
			t.Errorf("requires %q: served %v, want %v", requires, got, served)
		}
	}
}

// A certificate is a party if the policy counts by it or requires it. A connection with one may
// carry any session or token, so neither bounds the other.
func TestAWindowByCertificateBoundsThoseThatShowIt(t *testing.T) {
	// of address, session, token, certificate, everybody
	for key, bounded := range map[string]string{
		"cert":             "---c-",
		"cert or ip":       "---c-",
		"cert or token":    "---c-", // a token moves between connections
		"token or cert":    "--t--", // a connection has any number of tokens
		"cert or everyone": "---c-",
		"ip or cert":       "a----",
		"cert+session":     "-----",
	} {
		if got := boundedBy(policyBy(t, key)); got != bounded {
			t.Errorf("%s bounds %s, want %s", key, got, bounded)
		}
	}
	p := policyBy(t, "ip")
	if n := len(Parties(p)); n != 4 {
		t.Errorf("%d parties of a policy without certificates", n)
	}
	p.Limiters[0].Requires = "cert"
	for i, party := range Parties(p) {
		if !party.Served(&p.Limiters[0]) {
			t.Errorf("party %d of %d: no request of %q has a certificate", i, len(Parties(p)), party.Name)
		}
	}
}

// Only windows that a party shares count, and of these only the tightest, including the cost.
func TestTheTightestWindowIsTheExposure(t *testing.T) {
	for _, test := range []struct {
		windows string
		cost    int64
		want    string // of address, session, token, everybody: in 60 s / in 3600 s
	}{
		{"1000 per minute by ip+agent, 30000 per hour by ip", 1, "59999/60000 unbounded unbounded unbounded"},
		{"600 per minute by everyone, 100 per minute by session or ip", 10, "120/3660 20/610 120/3660 120/3660"},
		{"15 per minute by everyone", 10, "2/61 2/61 2/61 2/61"},
		{"20 per minute by ip, 2000 per day by ip", 1, "40/1220 unbounded unbounded unbounded"},
		// The day ends in the middle of the hour.
		{"60 per minute by token or ip, 2000 per day by token or ip", 1, "unbounded unbounded 120/3660 unbounded"},
		// 119, if one opens the hour early.
		{"10 per minute by ip, 60 per hour by ip", 1, "20/≤120 unbounded unbounded unbounded"},
		{"7 per 7 seconds by everyone", 1, "69/3611 69/3611 69/3611 69/3611"},
		{"5 per 31 days by everyone", 5, "1/1 1/1 1/1 1/1"},
	} {
		l := weir.Limiter{Cost: test.cost}
		for w := range strings.SplitSeq(test.windows, ", ") {
			window, err := weir.ParseWindow(w)
			if err != nil {
				t.Fatal(err)
			}
			l.Windows = append(l.Windows, window)
		}
		var got []string
		for _, p := range Parties(weir.Policy{}) {
			minute, hour := Exposure(&l, p, 60), Exposure(&l, p, 3600)
			switch {
			case !p.Served(&l):
				got = append(got, "-")
			case minute == nil || hour == nil:
				got = append(got, "unbounded")
			default:
				got = append(got, minute.String()+"/"+hour.String())
			}
		}
		if s := strings.Join(got, " "); s != test.want {
			t.Errorf("%s, cost %d: %s\nwant %s", test.windows, test.cost, s, test.want)
		}
	}
}

type oneVisitor struct{}

func (oneVisitor) AppendKey(dst []byte, source string) ([]byte, bool) {
	return append(dst, source...), true
}

// boundedBy returns the letters of the parties that a policy's first window bounds, and a dash for
// each other one.
func boundedBy(p weir.Policy) string {
	got := ""
	for i, party := range Parties(p) {
		if party.bounds(p.Limiters[0].Windows[0].Key) {
			got += "astce"[i : i+1]
		} else {
			got += "-"
		}
	}
	return got
}
