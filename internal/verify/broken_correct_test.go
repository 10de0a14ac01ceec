package verify_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/verify"
)

// untestable lists the clauses that one caller cannot test on a correct server, by
// limiter.
func untestable() map[string][]string {
	// One caller has one address.
	byAddress := []string{"widget-coupon", "widget-other", "widget-satisfaction", "widget-typing"}
	return map[string][]string{
		"separate": byAddress,
		// No credential is read.
		"unverified": append([]string{"widget-init"}, byAddress...),
		"fields-5xx": allNames(), // the server answers none
		"value":      allNames(), // the contract counts by no such value
		"penalty":    allNames(), // it has none
		"in-flight":  allNames(), // it does not limit the requests under way
		"outcome":    allNames(), // all requests are counted
		// Preflights are requests of this limiter.
		"fields-preflight": {"widget-other"},
		"preflight-free":   {"widget-other"},
		"exposed":          {"wp-plugin"}, // browsers on other origins do not use it
	}
}

func allNames() (names []string) {
	for _, r := range small() {
		names = append(names, r.name)
	}
	return names
}

func TestEveryClauseIsKeptByACorrectServer(t *testing.T) {
	for name, rules := range map[string][]rule{"small": small(), "full": full()} {
		t.Run(name, func(t *testing.T) {
			report := verified(t, newAPI(rules), nil)
			t.Logf("%d requests of %d, %v", report.Sent, report.Planned, report.Ended.Sub(report.Started))
			for clause, results := range found(report, verify.Broken) {
				t.Errorf("%s is broken%s", clause, describe(results))
			}
			kept, untested := found(report, verify.Kept), found(report, verify.Untested)
			for _, c := range verify.Clauses {
				if len(kept[c.ID]) == 0 && !slices.Contains([]string{"fields-5xx", "value", "penalty", "in-flight", "outcome"}, c.ID) {
					t.Errorf("%s was found kept by no limiter", c.ID)
				}
				want := untestable()[c.ID]
				slices.Sort(want)
				if got := limitersOf(untested[c.ID]); !slices.Equal(got, want) {
					t.Errorf("%s is untested for %v, want %v%s", c.ID, got, want, describe(untested[c.ID]))
				}
			}
		})
	}
}

// innocent are correct servers that look broken.
func innocent() map[string]func(*api) {
	always := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
	date := func(shift time.Duration, step time.Duration) func(time.Time) string {
		return func(now time.Time) string { return now.Add(shift).Truncate(step).UTC().Format(http.TimeFormat) }
	}
	return map[string]func(*api){
		"it is slow to decide":        func(a *api) { a.before = always(50 * time.Millisecond) },
		"it is slow to answer":        func(a *api) { a.after = always(50 * time.Millisecond) },
		"it is very slow to answer":   func(a *api) { a.after = always(700 * time.Millisecond) },
		"its clock is 3 s ahead":      func(a *api) { a.skew = 3 * time.Second },
		"its clock is 3 s behind":     func(a *api) { a.skew = -3 * time.Second },
		"its clock is 3.4 s ahead":    func(a *api) { a.skew = 3400 * time.Millisecond },
		"its clock is an hour ahead":  func(a *api) { a.skew = time.Hour },
		"its clock is an hour behind": func(a *api) { a.skew = -time.Hour },
		"ahead, and slow": func(a *api) {
			a.skew, a.before, a.after = 3*time.Second, always(30*time.Millisecond), always(40*time.Millisecond)
		},
		"a proxy caches Date for a second":     func(a *api) { a.dated = date(-999*time.Millisecond, time.Second) },
		"a proxy caches Date for 5 s":          func(a *api) { a.dated = date(0, 5*time.Second) },
		"a proxy's own Date is 2 s ahead":      func(a *api) { a.dated = date(2*time.Second, time.Second) },
		"a proxy's own Date is 2 s behind":     func(a *api) { a.dated = date(-2*time.Second, time.Second) },
		"a proxy's own Date is an hour behind": func(a *api) { a.dated = date(-time.Hour, time.Second) },
		"Date is none":                         func(a *api) { a.dated = func(time.Time) string { return "" } },
		"Date is when it was sent":             func(a *api) { a.dated, a.after = nil, always(80*time.Millisecond) },
		"others come now and then":             func(a *api) { a.others = everyNth(7) },
		"it begins just before a minute":       func(a *api) { a.start = 59*time.Second + 990*time.Millisecond },
		"it begins just before a second":       func(a *api) { a.start = 17*time.Second + 999*time.Millisecond },
		"no other language is spoken":          func(a *api) { a.breaks.edit = english },
		"windows begin with the clock's":       func(a *api) { a.breaks.floors = true },
		"other spellings are not found":        func(a *api) { a.strict = true },
	}
}

func everyNth(n int64) func() bool {
	var seen atomic.Int64
	return func() bool { return seen.Add(1)%n == 0 }
}

// english answers only in English.
func english(x *exchange) {
	if refused(x) {
		x.fail(http.StatusTooManyRequests, "rate_limited", messages()["en"])
		x.header.Set("Content-Language", "en")
	}
}

func TestACorrectServerIsNotReportedAsBroken(t *testing.T) {
	for name, change := range innocent() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(small())
			change(a)
			report := verified(t, a, these([]string{"widget-init", "widget-session", "wp-plugin"}))
			for clause, results := range found(report, verify.Broken) {
				t.Errorf("%s is reported as broken%s", clause, describe(results))
			}
			if kept := len(found(report, verify.Kept)); kept < len(verify.Clauses)*2/3 {
				t.Errorf("%d clauses were found kept: untested are%s", kept, describe(report.Results))
			}
		})
	}
}

// Another process or machine may write Date, so its clock may differ slightly from
// the deciding one.
func TestASlightlyWrongDateBreaksNoClause(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	for off := -1400 * time.Millisecond; off <= 1400*time.Millisecond; off += 100 * time.Millisecond {
		for _, takes := range []time.Duration{time.Millisecond / 2, 60 * time.Millisecond} {
			t.Run(fmt.Sprint(off, " ", takes), func(t *testing.T) {
				t.Parallel()
				a := newAPI(small())
				a.before = func() time.Duration { return takes }
				a.start += off % (370 * time.Millisecond)
				a.dated = func(now time.Time) string { return now.Add(off).UTC().Format(http.TimeFormat) }
				for clause, results := range found(verified(t, a, these([]string{"widget-session"})), verify.Broken) {
					t.Errorf("%s is reported as broken%s", clause, describe(results))
				}
			})
		}
	}
}

// A jitter is the delay of a busy network and a busy machine: mostly short,
// sometimes long.
type jitter struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newJitter(seed uint64) *jitter { return &jitter{r: rand.New(rand.NewPCG(seed, 0))} }

func (j *jitter) next() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	d := time.Duration(j.r.ExpFloat64() * float64(8*time.Millisecond))
	if j.r.IntN(40) == 0 {
		d += time.Duration(j.r.IntN(600)) * time.Millisecond
	}
	return d
}
