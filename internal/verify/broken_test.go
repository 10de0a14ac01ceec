package verify_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/verify"
)

// A defect is one way in which a server is broken, with the report that the
// verifier must give.
type defect struct {
	name   string
	breaks func(*api)
	broken implies
}

// An implies lists each clause that a defect breaks, and the reason if it is not
// the defect itself. All other clauses must have the verdict of a correct server,
// or be untested. "clause@limiter,limiter" is broken only for these limiters;
// "clause?" is broken in some runs only.
type implies map[string]string

// on returns the limiters that a defect is tested on: those in the table, and one
// by token.
func (d *defect) on() []string {
	names := []string{"wp-plugin"}
	for at := range d.broken {
		if _, limiters, ok := strings.Cut(at, "@"); ok {
			names = append(names, strings.Split(limiters, ",")...)
		}
	}
	if len(names) == 1 {
		names = append(names, "widget-leads")
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// these returns an option that verifies only some limiters.
func these(limiters []string) func(*verify.Options) {
	return func(o *verify.Options) { o.Limiters = limiters }
}

func edits(f func(*exchange)) func(*api) {
	return func(a *api) { a.breaks.edit = f }
}

func defects() []defect {
	return slices.Concat(fieldDefects(), valueDefects(), countingDefects(), refusalDefects(), exposureDefects(), callerDefects(), pretenceDefects(), pathDefects(), movingDefects(), resetDefects())
}

// clauses returns the broken limiters by clause; nil if the clause need not be
// broken.
func (want implies) clauses(verified []string) map[string][]string {
	all := map[string][]string{}
	for at := range want {
		clause, limiters, some := strings.Cut(at, "@")
		if clause, maybe := strings.CutSuffix(clause, "?"); maybe {
			all[clause] = nil
			continue
		}
		all[clause] = slices.DeleteFunc(slices.Clone(verified), func(name string) bool {
			return some && !slices.Contains(strings.Split(limiters, ","), name)
		})
	}
	return all
}

// found returns the results with a verdict by clause, in the report's order.
func found(r *verify.Report, verdict verify.Verdict) map[string][]verify.Result {
	all := map[string][]verify.Result{}
	for _, x := range r.Results {
		if x.Verdict == verdict {
			all[x.Clause] = append(all[x.Clause], x)
		}
	}
	return all
}

func limitersOf(results []verify.Result) []string {
	var names []string
	for _, x := range results {
		names = append(names, x.Limiter)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func describe(results []verify.Result) string {
	var b strings.Builder
	for _, x := range results {
		fmt.Fprintf(&b, "\n\t%s %s %s: %s", x.Verdict, x.Clause, x.Limiter, x.Detail)
		if x.Exchange != nil {
			fmt.Fprintf(&b, "\n\t\t%s\n\t\t%s\n\t\tat %s", strings.ReplaceAll(x.Exchange.Request, "\n", "\n\t\t"),
				strings.ReplaceAll(x.Exchange.Response, "\n", "\n\t\t"), x.Exchange.At)
		}
	}
	return b.String()
}

func TestADefectIsReportedOnlyForItsLimiter(t *testing.T) {
	const only = "widget-leads"
	for i, d := range defects() {
		a := newAPI(small())
		d.breaks(a)
		if a.breaks.edit == nil || i%4 != 0 {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			edit := a.breaks.edit
			a.breaks.edit = func(x *exchange) {
				if x.rule.name == only {
					edit(x)
				}
			}
			broken := found(verified(t, a, these([]string{only, "wp-plugin"})), verify.Broken)
			accuse(t, broken, d.broken.clauses(nil))
			for clause, results := range broken {
				if got := limitersOf(results); !slices.Equal(got, []string{only}) {
					t.Errorf("%s is broken for %v, want %s alone%s", clause, got, only, describe(results))
				}
			}
		})
	}
}

func check(t *testing.T, d defect, report *verify.Report) {
	t.Helper()
	broken, want := found(report, verify.Broken), d.broken.clauses(d.on())
	for _, clause := range missing(want, broken) {
		if want[clause] == nil {
			continue
		}
		t.Errorf("reported as broken, though it is not: %s%s", clause, describe(slices.DeleteFunc(slices.Clone(report.Results), func(x verify.Result) bool { return x.Clause != clause })))
	}
	accuse(t, broken, want)
	for clause, limiters := range want {
		if got := limitersOf(broken[clause]); limiters != nil && len(got) > 0 && !slices.Equal(got, limiters) {
			t.Errorf("%s is broken for %v, want %v%s", clause, got, limiters, describe(broken[clause]))
		}
	}
	for clause, results := range broken {
		for _, x := range results {
			if x.Exchange == nil || x.Detail == "" {
				t.Errorf("%s is broken, and nothing shows it: %+v", clause, x)
			}
		}
	}
	if got, all := len(report.Results), len(verify.Clauses)*len(d.on()); got != all {
		t.Errorf("%d results, want %d: each clause for each limiter", got, all)
	}
}

// accuse fails the test for clauses that are wrongly reported as broken.
func accuse(t *testing.T, broken map[string][]verify.Result, want map[string][]string) {
	t.Helper()
	for _, clause := range missing(broken, want) {
		t.Errorf("reported as broken, though it is not: %s %v%s", clause, limitersOf(broken[clause]), describe(broken[clause][:1]))
	}
}

// missing returns the clauses of a that b lacks, in order.
func missing[A, B any](a map[string]A, b map[string]B) []string {
	var all []string
	for _, clause := range slices.Sorted(maps.Keys(a)) {
		if _, ok := b[clause]; !ok {
			all = append(all, clause)
		}
	}
	return all
}

func TestEveryClauseHasADefect(t *testing.T) {
	// TestASecondBudgetOfAValueIsFound, TestWrongPenaltiesAreFound,
	// TestEachServerThatSettlesWronglyIsFound.
	own := map[string]int{"value": 1, "penalty": 1, "in-flight": 1, "outcome": 1}
	for _, d := range defects() {
		for at, because := range d.broken {
			if clause, _, _ := strings.Cut(at, "@"); because == "" {
				own[strings.TrimSuffix(clause, "?")]++
			}
		}
	}
	for _, c := range verify.Clauses {
		if own[c.ID] == 0 {
			t.Errorf("no defect breaks %s: no test shows that the verifier detects it", c.ID)
		}
		delete(own, c.ID)
	}
	if len(own) > 0 {
		t.Errorf("defects break clauses that there are not: %v", own)
	}
}

// No caller can see these from outside, and no defect here shows them:
//
//   - One budget for all addresses, or a wrong part of an address as key (a /64 for a /128, a mapped
//     IPv4 address for another): one verifier has one address.
//   - Which entry of X-Forwarded-For is trusted if the verifier itself comes through a trusted proxy.
//   - Refused requests that are counted within the window and forgotten with it: 429 and Remaining 0
//     are the same with them and without.
//   - Refused requests charged to a window with so much left that it never binds during the
//     verification (30,000 an hour, with the default budget of requests): small limits show it.
//   - Why everything is refused from the first request on: others may have spent the address's
//     budget, and then no credential is read. All clauses are untested then, with that reason.
//   - Refused requests charged to a window that others may use (an hour by address): the missing
//     units may be theirs.
//   - A budget that is not restored, or half restored, on a limiter that others may use: they may
//     have spent it.
//   - Preflights that spend the address's share of an endpoint limited by session: a preflight
//     carries no credential, so it changes no session's budget.
//   - A restoration that is early or late by less than a round trip.
//   - Retry-After rounded up or down within a second, since Reset is a whole second.
//   - Whether a message's text is right, in the language that Content-Language names.
//   - Whether counts outlast a restart, what is logged, and what is stored.
