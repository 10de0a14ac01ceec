package verify_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/verify"
)

// A counter counts one key without fixed windows, and reports plausible fields.
type counter interface {
	left(now time.Time) int                   // units that may be spent
	spend(now time.Time)                      // spends one
	reset(now time.Time) time.Time            // Reset, before it is rounded to a second
	wait(now time.Time) (after time.Duration) // Retry-After unrounded; 0 if until Reset
}

// takeMoving charges all windows of the rule or none, each by its counter.
func (x *exchange) takeMoving(keys []string) {
	x.admitted = true
	var all []counter
	for i, s := range x.rule.spans {
		c := x.moving[keys[i]]
		if c == nil {
			c = x.breaks.counter(s.limit, time.Duration(s.per)*time.Second)
			x.moving[keys[i]] = c
		}
		x.admitted = x.admitted && c.left(x.now) > 0
		all = append(all, c)
	}
	for i, s := range x.rule.spans {
		if x.admitted {
			all[i].spend(x.now)
		}
		at := standing{limit: s.limit, remaining: max(0, all[i].left(x.now)), per: s.per, reset: ceiling(all[i].reset(x.now))}
		if after := all[i].wait(x.now); after > 0 {
			at.wait = int64((after + time.Second - 1) / time.Second)
		}
		x.standing = append(x.standing, at)
	}
	slices.SortStableFunc(x.standing, func(a, b standing) int { return a.remaining - b.remaining })
}

func ceiling(t time.Time) int64 { return t.Add(time.Second - 1).Unix() }

// A slidingLog admits limit units in any span of length per.
type slidingLog struct {
	limit       int
	per         time.Duration
	past        []time.Time
	consecutive bool // Reset is that of consecutive windows
	end         time.Time
}

func (l *slidingLog) left(now time.Time) int {
	for len(l.past) > 0 && now.Sub(l.past[0]) >= l.per {
		l.past = l.past[1:]
	}
	if !now.Before(l.end) {
		l.end = now.Truncate(time.Second).Add(l.per)
	}
	return l.limit - len(l.past)
}

func (l *slidingLog) spend(now time.Time) { l.past = append(l.past, now) }

func (l *slidingLog) reset(now time.Time) time.Time {
	switch {
	case l.consecutive:
		return l.end
	case len(l.past) == 0:
		return now
	}
	return l.past[0].Add(l.per)
}

func (l *slidingLog) wait(time.Time) time.Duration { return 0 }

// A slidingCounter weighs the last window's count by the share of it that the last
// span of length per covers.
type slidingCounter struct {
	limit         int
	per           time.Duration
	from          time.Time
	before, spent int
}

func (c *slidingCounter) left(now time.Time) int {
	if begins := now.Truncate(c.per); !begins.Equal(c.from) {
		c.before = 0
		if begins.Sub(c.from) == c.per {
			c.before = c.spent
		}
		c.from, c.spent = begins, 0
	}
	weight := 1 - float64(now.Sub(c.from))/float64(c.per)
	return c.limit - c.spent - int(math.Ceil(float64(c.before)*weight))
}

func (c *slidingCounter) spend(time.Time)                  { c.spent++ }
func (c *slidingCounter) reset(time.Time) time.Time        { return c.from.Add(c.per) }
func (c *slidingCounter) wait(now time.Time) time.Duration { return 0 }

// A renewed window ends when nothing has been admitted for its length.
type renewed struct {
	limit, spent int
	per          time.Duration
	from, end    time.Time
	silently     bool // Reset stays where it was when the window began
}

func (r *renewed) left(now time.Time) int {
	if !now.Before(r.end) {
		r.spent, r.from, r.end = 0, now.Truncate(time.Second), now.Truncate(time.Second).Add(r.per)
	}
	return r.limit - r.spent
}

func (r *renewed) spend(now time.Time) {
	r.spent++
	r.end = now.Truncate(time.Second).Add(r.per)
}

func (r *renewed) reset(time.Time) time.Time {
	if r.silently {
		return r.from.Add(r.per)
	}
	return r.end
}

func (r *renewed) wait(time.Time) time.Duration { return 0 }

// A tokenBucket refills evenly: limit units in a span of length per. GCRA is
// equivalent.
type tokenBucket struct {
	limit int
	per   time.Duration
	full  time.Time // when it is full again: GCRA's theoretical arrival time
	begun time.Time // start of the window that Reset pretends
	// If set, Reset is that of consecutive windows; if not, when the bucket is full.
	consecutive bool
	hastes      bool // if set, Retry-After is the time to the next unit
}

func (b *tokenBucket) each() time.Duration { return b.per / time.Duration(b.limit) }

func (b *tokenBucket) left(now time.Time) int {
	if now.Sub(b.begun) >= b.per {
		b.begun = now.Truncate(time.Second)
	}
	missing := max(b.full.Sub(now), 0)
	return int((b.per - missing) / b.each())
}

func (b *tokenBucket) spend(now time.Time) {
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(b.each())
}

func (b *tokenBucket) reset(now time.Time) time.Time {
	if b.consecutive {
		return b.begun.Add(b.per)
	}
	return b.full
}

func (b *tokenBucket) wait(now time.Time) time.Duration {
	if !b.hastes {
		return 0
	}
	return max(b.full.Add(b.each()-b.per).Sub(now), 1)
}

// movingCounters are ways of counting, by name, that look like fixed windows in a
// burst.
func movingCounters() map[string]func(limit int, per time.Duration) counter {
	return map[string]func(limit int, per time.Duration) counter{
		"a sliding log, and Reset is when its oldest unit comes back": func(limit int, per time.Duration) counter { return &slidingLog{limit: limit, per: per} },
		"a sliding log, and Reset is that of fixed windows": func(limit int, per time.Duration) counter {
			return &slidingLog{limit: limit, per: per, consecutive: true}
		},
		"a sliding counter":                                      func(limit int, per time.Duration) counter { return &slidingCounter{limit: limit, per: per} },
		"an expiry that each request renews":                     func(limit int, per time.Duration) counter { return &renewed{limit: limit, per: per} },
		"an expiry that each request renews, and Reset hides it": func(limit int, per time.Duration) counter { return &renewed{limit: limit, per: per, silently: true} },
		"a token bucket, and Reset is that of fixed windows": func(limit int, per time.Duration) counter {
			return &tokenBucket{limit: limit, per: per, consecutive: true}
		},
		"a token bucket, and Reset is when it is full":        func(limit int, per time.Duration) counter { return &tokenBucket{limit: limit, per: per} },
		"GCRA, and Retry-After is when the next request fits": func(limit int, per time.Duration) counter { return &tokenBucket{limit: limit, per: per, hastes: true} },
	}
}

// counts makes a server count with one of movingCounters.
func counts(name string) func(*api) {
	make, ok := movingCounters()[name]
	if !ok {
		panic("no counter is called " + name)
	}
	return func(a *api) { a.breaks.counter = make }
}

// Moving windows are distinguished from fixed ones even if they last only seconds,
// while a burst takes less than one.
func TestACounterThatMovesIsFoundInShortWindows(t *testing.T) {
	for name, make := range movingCounters() {
		for _, per := range []int64{2, 3, 5} {
			t.Run(fmt.Sprint(name, ", ", per, " s"), func(t *testing.T) {
				t.Parallel()
				rules := small()
				for i := range rules {
					rules[i].spans = rules[i].spans[:1]
					rules[i].spans[0].per = per
				}
				a := newAPI(rules)
				a.breaks.counter = make
				report := verified(t, a, these([]string{"widget-leads", "wp-plugin"}))
				limiters := []string{"widget-leads"}
				if per > 2 { // if others may spend the budget, the test takes longer
					limiters = append(limiters, "wp-plugin")
				}
				for _, limiter := range limiters {
					if !slices.ContainsFunc(report.Results, func(x verify.Result) bool { return x.Verdict == verify.Broken && x.Limiter == limiter }) {
						t.Errorf("nothing is broken for %s%s", limiter, describe(report.Results))
					}
				}
			})
		}
	}
}

// movingDefects count without fixed windows, with fields that look right in a
// burst.
func movingDefects() []defect {
	var all []defect
	for name, broken := range map[string]implies{
		"a sliding log, and Reset is when its oldest unit comes back": {"fixed-window": "", "restored": "more comes back before Reset"},
		"a sliding log, and Reset is that of fixed windows":           {"fixed-window": "", "restored@widget-leads": "it is not whole"},
		"a sliding counter":                                      {"fixed-window": "", "restored@widget-leads": "it is not whole"},
		"an expiry that each request renews":                     {"fixed-window": "", "reset-constant": "it moves"},
		"an expiry that each request renews, and Reset hides it": {"restored": "it is not, at that Reset", "retry-after": "waiting it is not enough", "window": "Reset comes, and the window goes on"},
		"a token bucket, and Reset is that of fixed windows": {"fixed-window": "", "admitted": "it refills", "remaining": "it rises", "restored": "it is before",
			"refused-remaining?": "what follows 0 is admitted, where it has refilled"},
		"a token bucket, and Reset is when it is full":        {"reset-constant": "each unit moves it", "fixed-window?": "each unit moves Reset", "restored": "it is before, by the unit"},
		"GCRA, and Retry-After is when the next request fits": {"reset-constant": "each unit moves it", "fixed-window?": "each unit moves Reset", "restored": "it is before, by the unit", "retry-after": "it is not until Reset"},
	} {
		all = append(all, defect{name, counts(name), broken})
	}
	return all
}

// With quick, a pause of two seconds detects an expiry that requests renew, and a
// bucket that refills.
func TestQuickPausesAndReportsWhatItCouldNotTest(t *testing.T) {
	for name, want := range map[string]string{ // the broken or untested clause
		"an expiry that each request renews":                 "fixed-window",
		"a token bucket, and Reset is that of fixed windows": "remaining",
		"": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(small())
			if name != "" {
				counts(name)(a)
			}
			report := verified(t, a, func(o *verify.Options) { o.Quick, o.Limiters = true, []string{"widget-leads"} })
			if took := report.Ended.Sub(report.Started); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			for _, x := range report.Results {
				switch {
				case x.Clause == want && x.Verdict != verify.Broken:
					t.Errorf("%s is %s for %s: %s", x.Clause, x.Verdict, x.Limiter, x.Detail)
				case want == "" && x.Clause == "fixed-window" && (x.Verdict != verify.Untested || x.Reason != verify.NeedsMore):
					t.Errorf("%s is %s for %s (%s): %s", x.Clause, x.Verdict, x.Limiter, x.Reason, x.Detail)
				}
			}
		})
	}
}
