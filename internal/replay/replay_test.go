package replay

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/accesslog"
	"github.com/weirlimit/weir/internal/live"
)

// noon is when every timeline begins.
const noon = 1772366400

// limiterOf returns one limiter for all requests, with windows in a policy's form.
func limiterOf(t rapid.TB, name string, windows ...string) weir.Limiter {
	t.Helper()
	l := weir.Limiter{Name: name, Routes: []weir.Route{{Path: "/", Prefix: true}}}
	for _, s := range windows {
		w, err := weir.ParseWindow(s)
		if err != nil {
			t.Fatal(err)
		}
		l.Windows = append(l.Windows, w)
	}
	return l
}

func policyOf(limiters ...weir.Limiter) weir.Policy { return weir.Policy{Limiters: limiters} }

func start(t rapid.TB, o Options) *Replay {
	t.Helper()
	if o.Forwarded == 0 {
		o.Forwarded = -1
	}
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// send adds a request at that many seconds past noon.
func send(t rapid.TB, r *Replay, second float64, peer string) {
	t.Helper()
	if err := r.Add(lineAt(second, peer)); err != nil {
		t.Fatal(err)
	}
}

func lineAt(second float64, peer string) *accesslog.Line {
	return &accesslog.Line{Time: noon*int64(time.Second) + int64(second*float64(time.Second)), Peer: []byte(peer), Method: []byte("GET"), Target: []byte("/a?b=c"), HasAgent: true}
}

func report(t rapid.TB, r *Replay) *Report {
	t.Helper()
	out, err := r.Report()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestALogIsJudgedByItsOwnClock(t *testing.T) {
	r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "2 per minute by ip")), Name: "p", Touch: 0.5})
	for _, s := range []float64{0, 1, 2, 59.9, 60, 61, 62} { // the window ends at 60
		send(t, r, s, "192.0.2.7")
	}
	send(t, r, 62, "192.0.2.8:99")
	send(t, r, 61.5, "[2001:db8::1]:99") // late: counted at 62
	if err := r.Add(&accesslog.Line{Time: noon}); err != nil {
		t.Fatal(err)
	}
	out := report(t, r)
	o := out.Policy
	if o.Requests != 9 || o.Refused != 3 || o.Unlimited != 0 || o.Callers.N != 3 || o.Touched.N != 1 || o.Shared != 0 {
		t.Errorf("outcome: %+v", o)
	}
	if out.Log.Requests != 9 || out.Log.Without != 1 || out.Log.OutOfOrder != 1 || out.Log.Disorder != 1 || out.Log.From != noon || out.Log.To != noon+62 {
		t.Errorf("log: %+v", out.Log)
	}
	l := o.Limiters[0]
	if want := []Caller{{Name: "ip 192.0.2.7", Requests: 7, Refused: 3, First: noon + 2, Last: noon + 62, Peak: 4}}; !slices.Equal(l.Worst, want) {
		t.Errorf("worst %+v", l.Worst)
	}
	w := l.Windows[0]
	if w.Window != "2 per minute by ip" || w.Refused != 3 || w.Callers.N != 3 || w.Touched.N != 1 || w.Peak != 4 {
		t.Errorf("window %+v", w)
	}
	if got := w.Recommend; got.Limit != 1 || got.Touches.N != 1 || got.Callers.N != 3 {
		t.Errorf("recommended: %+v", got)
	}
	if s := o.Series; s.Step != 1 || s.Start != noon || len(s.Requests) != 63 || s.Requests[62] != 3 || s.Refused[59] != 1 {
		t.Errorf("series %+v", s)
	}
	if want := live.Version(r.options.Policy); o.Version != want {
		t.Errorf("version %q, elsewhere %q", o.Version, want)
	}
}

func TestASeriesStaysShort(t *testing.T) {
	r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "1 per day by ip"))})
	total := int64(0)
	for s := 0.0; s < 1e6; s += 37 {
		send(t, r, s, "192.0.2.7")
		total++
	}
	s := report(t, r).Policy.Series
	var requests, refused int64
	for i := range s.Requests {
		requests, refused = requests+s.Requests[i], refused+s.Refused[i]
	}
	if len(s.Requests) > maxPoints || len(s.Requests) < maxPoints/2 || requests != total || refused != total-12 || s.Start > noon || s.Start < noon-s.Step {
		t.Errorf("%d points from %d by %d: %d requests, %d refused, want %d", len(s.Requests), s.Start, s.Step, requests, refused, total)
	}
}

func TestASecondPolicyIsCompared(t *testing.T) {
	strict, lax := policyOf(limiterOf(t, "all", "1 per minute by ip")), policyOf(limiterOf(t, "all", "3 per minute by ip"))
	fill := func(o Options) *Difference {
		r := start(t, o)
		for i := range 5 {
			send(t, r, float64(i), "192.0.2.7")
		}
		send(t, r, 5, "192.0.2.8")
		return report(t, r).Difference
	}
	d := fill(Options{Policy: lax, Against: &strict})
	if d.NewlyRefused != 2 || d.NewlyAdmitted != 0 || d.NewlyTouched.N != 0 || d.Freed.N != 0 || d.Limiters[0] != (Differences{"all", 2, 0, 0}) || d.Worst[0].Refused != 2 || d.Worst[0].Name != "ip 192.0.2.7" {
		t.Errorf("stricter: %+v", d)
	}
	d = fill(Options{Policy: strict, Against: &lax})
	if d.NewlyRefused != 0 || d.NewlyAdmitted != 2 || d.NewlyTouched.N != 0 || d.Freed.N != 0 || d.Limiters[0] != (Differences{"all", 0, 2, 0}) || len(d.Worst) != 0 {
		t.Errorf("laxer: %+v", d)
	}
	elsewhere := limiterOf(t, "else", "1 per minute by ip")
	elsewhere.Routes[0].Path = "/else"
	d = fill(Options{Policy: strict, Against: &weir.Policy{Limiters: []weir.Limiter{elsewhere}}})
	if d.NewlyAdmitted != 4 || d.Limiters[0] != (Differences{"", 0, 4, 0}) {
		t.Errorf("none: %+v", d)
	}
	if d = fill(Options{Policy: strict, Against: &strict}); d.NewlyRefused+d.NewlyAdmitted != 0 || len(d.Limiters) != 0 {
		t.Errorf("itself: %+v", d)
	}
}

func TestCallersThatWaitAreServedInTime(t *testing.T) {
	r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "2 per minute by ip")), Paced: true})
	for range 7 { // two now, two each at 60 and 120, one at 180
		send(t, r, 0.5, "192.0.2.7")
	}
	send(t, r, 90, "192.0.2.7") // refused: 60 to 120 is spent; the second at 180
	d := report(t, r).Policy.Delay
	want := Delay{Delayed: 6, Mean: (2*59.5 + 2*119.5 + 179.5 + 90) / 6, P50: 90, P95: 179.5, P99: 179.5, Max: 179.5}
	about := func(a, b float64) bool { return a > b*0.99 && a < b*1.01 }
	if d.Delayed != 6 || d.GaveUp != 0 || !about(d.Mean, want.Mean) || !about(d.P50, 90) || d.Max != 179.5 {
		t.Errorf("delay %+v, want %+v", d, want)
	}
}

func TestCallersWaitOnlySoLong(t *testing.T) {
	r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "1 per minute by ip")), Paced: true, Patience: 2 * time.Minute})
	for range 10 { // now, at 60, at 120: the others learn by 120 that 180 is too late
		send(t, r, 0, "192.0.2.7")
	}
	d := report(t, r).Policy.Delay
	if d.Delayed != 2 || d.GaveUp != 7 || d.Max != 120 {
		t.Errorf("delay %+v", d)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	fits := policyOf(limiterOf(t, "all", "1 per minute by ip"))
	for _, o := range []Options{
		{Policy: fits, Memory: 1}, {Policy: fits, Touch: -1}, {Policy: fits, Touch: 2}, {Policy: fits, Worst: 101},
		{Policy: fits, Patience: -1}, {Policy: fits, IPv6Prefix: 129}, {Policy: fits, Forwarded: -2}, {Policy: fits, ClientIPHeader: "X-Else"},
		{Policy: fits, Keys: map[string]int{"session": -1}}, {Policy: fits, Keys: map[string]int{"everyone": 0}},
		{Policy: fits, TrustedProxies: []netip.Prefix{{}}}, {Policy: policyOf(weir.Limiter{})},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v: no error", o)
		} else {
			_ = fmt.Sprint(err)
		}
	}
}

// If the clock stopped, no window would end, and a caller that waits for its end would wait for
// ever.
func TestATimeThatCannotBeCountedIsLeftOut(t *testing.T) {
	for _, paced := range []bool{false, true} {
		r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "1 per 31 days by ip")), Paced: paced, Patience: maxPatience})
		last := float64(latest/int64(time.Second)) - noon
		for _, s := range []float64{-noon - 1, 0, 1, 6e9, last - 40*86400, last - 1, last, last + 1} {
			send(t, r, s, "192.0.2.7")
		}
		out := report(t, r)
		o := out.Policy
		if out.Log.Timeless != 3 || out.Log.Requests != 5 || o.Refused != 2 || out.Log.From != noon || out.Log.To != noon+int64(last) {
			t.Errorf("paced %v: %+v, %d refused", paced, out.Log, o.Refused)
		}
		if paced && (o.Delay.Delayed != 2 || o.Delay.Max > 62*86400) {
			t.Errorf("delays %+v: the last callers are served when their window ends", o.Delay)
		}
	}
}

// A limiter in shadow also covers a request, and reports once for each what it would do.
func TestShadowsAreCountedBesideTheLimitersThatCount(t *testing.T) {
	enforced := limiterOf(t, "enforced", "3 per minute by ip")
	enforced.Routes[0].Path = "/a/"
	one, two := limiterOf(t, "one", "1 per minute by ip"), limiterOf(t, "two", "2 per minute by ip")
	one.Mode, two.Mode = weir.Shadow, weir.Shadow
	one.Routes[0].Path, two.Routes[0].Path = "/a/", "/a/b/"
	two.Routes = append(two.Routes, weir.Route{Path: "/elsewhere"})
	for _, paced := range []bool{false, true} {
		r := start(t, Options{Policy: policyOf(enforced, one, two), Paced: paced})
		for i, target := range []string{"/a/b/", "/a/b/", "/a/b/", "/a/b/", "/elsewhere"} {
			l := lineAt(float64(i), "192.0.2.7")
			l.Target = []byte(target)
			if err := r.Add(l); err != nil {
				t.Fatal(err)
			}
		}
		o := report(t, r).Policy
		if want := (Shadow{Requests: 5, Alone: 1, Refused: 4}); o.Shadow != want || o.Unlimited != 1 || o.Refused != 1 || o.Callers.N != 1 {
			t.Errorf("paced %v: %+v, want %+v; %d unlimited, %d refused, %d callers", paced, o.Shadow, want, o.Unlimited, o.Refused, o.Callers.N)
		}
	}
}
