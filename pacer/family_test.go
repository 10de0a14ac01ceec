package pacer_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/pacer"
)

// twoLimits returns a server with a limit per minute and one per hour under one
// credential, without routes for them.
func twoLimits(minute, hour int64) *foreign {
	report := foreignDialects["Unix seconds"]
	return &foreign{latency: 10 * time.Millisecond, limits: map[string]*foreignLimit{
		"/minute": {limit: minute, per: time.Minute, report: report},
		"/hour":   {limit: hour, per: time.Hour, report: report},
	}}
}

// A 429's own Reset decides how long its call waits, even if another limiter under
// the same credential reports a later one.
func TestARefusalsOwnResetDeterminesTheWait(t *testing.T) {
	for name, hour := range map[string]int64{"other limits": 50, "the same limits": 10} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := twoLimits(10, hour)
				// another caller has spent it
				f.limits["/minute"].spent, f.limits["/minute"].ends = 10, time.Now().Add(time.Minute)
				f.limits["/hour"].spent, f.limits["/hour"].ends = hour, time.Now().Add(time.Hour)
				p := pacer.New(&pacer.Options{Base: f, MaxWait: 2 * time.Hour})
				began := time.Now()
				var all sync.WaitGroup
				for path, want := range map[string]time.Duration{"/minute": time.Minute, "/hour": time.Hour} {
					all.Go(func() {
						f.serve(t, p, 1, path)
						if took := time.Since(began); took < want || took > want+2*time.Second {
							t.Errorf("%s took %v, want %v", path, took, want)
						}
					})
				}
				all.Wait()
			})
		})
	}
}

// If two limiters share one credential, they are paced separately once both have
// answered.
func TestTwoLimitsUnderOneCredentialDoNotStallEachOther(t *testing.T) {
	for name, hour := range map[string]int64{"other limits": 20, "the same limits": 10} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := twoLimits(10, hour)
				p := pacer.New(&pacer.Options{Base: f, Threshold: pacer.Keep(0), MaxWait: 3 * time.Hour})
				f.serve(t, p, 1, "/minute/a")
				pass(5 * time.Second)
				f.serve(t, p, 1, "/hour")
				began := time.Now()
				var all sync.WaitGroup
				// more than are left until its Reset
				all.Go(func() { f.serve(t, p, int(hour)+4, "/hour") })
				all.Go(func() {
					f.serve(t, p, 49, "/minute/a") // five windows
					if took := time.Since(began); took > 5*time.Minute {
						t.Errorf("five windows of a minute took %v", took)
					}
				})
				all.Wait()
				if took := time.Since(began); took < time.Hour-10*time.Second || took > time.Hour+10*time.Second {
					t.Errorf("two windows of an hour took %v", took)
				}
				for path, n := range f.refused {
					t.Errorf("%s was refused %d times", path, n)
				}
			})
		})
	}
}

// Processes that share a view share each other's knowledge of a path's own budget.
func TestProcessesShareTheBudgetsOfPaths(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := twoLimits(10, 20)
		m := &memory{states: map[string][]byte{}}
		var callers []*pacer.Transport
		for range 3 {
			p := pacer.New(&pacer.Options{Base: f, Shared: m, Threshold: pacer.Keep(0), MaxWait: 3 * time.Hour})
			callers = append(callers, p)
			f.serve(t, p, 1, "/minute")
			f.serve(t, p, 1, "/hour")
		}
		began := time.Now()
		var all sync.WaitGroup
		for _, p := range callers {
			all.Go(func() { f.serve(t, p, 5, "/hour") })
			all.Go(func() { f.serve(t, p, 9, "/minute") }) // 30 in all, three windows
		}
		all.Wait()
		if took := time.Since(began); took > 3*time.Minute || len(f.refused) != 0 {
			t.Errorf("it took %v, refused: %v", took, f.refused)
		}
	})
}

// Calls that wait in another limiter's line leave it once their path's own limiter
// is known.
func TestCallsInAnotherLimitersLineLeaveIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := twoLimits(10, 200)
		p := pacer.New(&pacer.Options{Base: f, Threshold: pacer.Keep(0), MaxWait: 3 * time.Hour})
		f.serve(t, p, 1, "/minute")
		f.latency = time.Second // all of these are sent, or wait, before the first is answered
		began := time.Now()
		f.serve(t, p, 150, "/hour/b")
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("150 of 200 took %v", took)
		}
		if len(f.refused) != 0 {
			t.Errorf("refused: %v", f.refused)
		}
	})
}

// Paths of one limiter share its budget, with or without identifiers in them, and
// also if their limiter's Reset moves.
func TestPathsOfOneLimiterStayTogether(t *testing.T) {
	for name, report := range map[string]func(http.Header, int64, int64, time.Time){
		"a fixed window":   foreignDialects["Unix seconds"],
		"seconds left":     foreignDialects["seconds left"],
		"a moving Reset":   classic("RateLimit", func(time.Time) string { return "10" }),
		"a named budget":   foreignDialects["Discord"],
		"a policy by name": foreignDialects["draft 10"],
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				pass(789 * time.Millisecond)
				f := &foreign{latency: 15 * time.Millisecond, limits: map[string]*foreignLimit{"/": {limit: 40, per: 10 * time.Second, report: report}}}
				p := pacer.New(&pacer.Options{Base: f, Threshold: pacer.Keep(0)})
				f.serve(t, p, 1, "/first")
				var all sync.WaitGroup
				for i := range 159 {
					all.Go(func() {
						pass(time.Duration(i) * 70 * time.Millisecond)
						f.serve(t, p, 1, fmt.Sprintf("/%c/users/%d", 'a'+i%5, i))
					})
				}
				all.Wait()
				if len(f.refused) != 0 {
					t.Errorf("refused: %v", f.refused)
				}
				if n := len(p.Budgets()); n != 1 {
					t.Errorf("%d budgets are kept: %+v", n, p.Budgets())
				}
			})
		})
	}
}

// A limiter with two windows reports the binding one, and its path keeps one line.
// A raised limit is not another limiter.
func TestALimiterThatChangesKeepsItsLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{replies: []reply{{status: 200, header: fields("60", "59", "now+60")}, {status: 200, header: fields("100", "40", "now+3600")},
			{status: 200, header: fields("60", "30", "now+30")}, {status: 200, header: fields("600", "500", "now+30")}}}
		p := pacer.New(&pacer.Options{Base: s})
		for range 4 {
			if _, err := p.RoundTrip(request(t, "/api")); err != nil {
				t.Fatal(err)
			}
		}
		if b := p.Budgets(); len(b) != 1 || b[0].Limit != 600 || b[0].Remaining != 500 || b[0].InFlight != 0 {
			t.Errorf("%+v", b)
		}
	})
}

// If both windows of a limiter are known, a 429 of the minute does not wait for the
// hour.
func TestTheMinutesRefusalDoesNotWaitForTheHour(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hour := fields("30000", "500", "now+3600")
		s := &script{replies: []reply{
			{status: 200, header: hour},
			{status: 429, header: with(fields("1000", "0", "now+20"), "Retry-After", "20")},
			{status: 200, header: fields("1000", "600", "now+60")},
		}}
		p := pacer.New(&pacer.Options{Base: s, MaxWait: 2 * time.Hour})
		for range 2 {
			if _, err := p.RoundTrip(initAs(t, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if !after(s.at[2], 20*time.Second) {
			t.Errorf("sent at %v, want the last at 20 s", s.at)
		}
	})
}

// keyed returns a request with an API key in a field of its own.
func keyed(t *testing.T, field, key string) *http.Request {
	t.Helper()
	r := request(t, "/api/things")
	r.Header.Del("Authorization")
	r.Header.Set(field, key)
	return r
}

func TestAnyFieldThatOptionsNameSeparatesBudgets(t *testing.T) {
	for name, c := range map[string]struct {
		options pacer.Options
		field   string
		want    int
	}{
		"X-Api-Key, without being named": {pacer.Options{}, "X-Api-Key", 2},
		"a field that is named":          {pacer.Options{Credentials: []string{"x-tenant"}}, "X-Tenant", 2},
		"a field that is not":            {pacer.Options{Credentials: []string{"Authorization"}}, "X-Tenant", 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &script{replies: []reply{{status: 200, header: fields("60", "0", "now+60")}, {status: 200, header: fields("60", "59", "now+60")}}}
				c.options.Base = s
				p := pacer.New(&c.options)
				for _, key := range []string{"one-secret", "two-secret"} {
					if _, err := p.RoundTrip(keyed(t, c.field, key)); err != nil {
						t.Fatal(err)
					}
				}
				all := p.Budgets()
				if len(all) != c.want {
					t.Errorf("there are %d budgets, want %d: %+v", len(all), c.want, all)
				}
				if waited := s.at[1] > time.Second; waited != (c.want == 1) {
					t.Errorf("the second was sent at %v", s.at[1])
				}
				for _, b := range all {
					if strings.Contains(fmt.Sprintf("%+v", b), "secret") {
						t.Errorf("a secret is shown: %+v", b)
					}
				}
			})
		})
	}
}

// The view on a disk contains no secret, from any field.
func TestAViewInAFileHoldsNoSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "view")
	view, err := pacer.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	s := &script{replies: []reply{{status: 200, header: fields("60", "59", "now+60")}}}
	p := pacer.New(&pacer.Options{Base: s, Shared: view})
	for _, field := range []string{"X-Api-Key", "Authorization"} {
		if _, err := p.RoundTrip(keyed(t, field, "a-secret-of-mine")); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(content) < 8192 || bytes.Contains(content, []byte("secret")) {
		t.Errorf("%d bytes; a secret is among them: %v", len(content), bytes.Contains(content, []byte("secret")))
	}
}

// If two budgets differ only by name, they are separate, even with the same limit
// and Reset.
func TestTheServersNameSeparatesBudgets(t *testing.T) {
	for _, name := range []string{"X-RateLimit-Resource", "X-RateLimit-Bucket"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				named := func(budget string) func(http.Header, int64, int64, time.Time) {
					return func(h http.Header, limit, left int64, reset time.Time) {
						foreignDialects["Unix seconds"](h, limit, left, reset)
						h.Set(name, budget)
					}
				}
				f := &foreign{latency: 10 * time.Millisecond, limits: map[string]*foreignLimit{
					"/repos":   {limit: 50, per: time.Hour, report: named("core")},
					"/graphql": {limit: 50, per: time.Hour, report: named("graphql"), spent: 47, ends: time.Now().Add(time.Hour)},
				}}
				p := pacer.New(&pacer.Options{Base: f})
				for _, path := range []string{"/repos", "/graphql", "/repos", "/repos/a"} {
					f.serve(t, p, 1, path)
				}
				if b := p.Budgets(); len(b) != 2 || b[0].Remaining+b[1].Remaining != 47+2 {
					t.Errorf("%+v", b)
				}
			})
		})
	}
}

// If a path's budget often changes its name, it displaces no other budgets.
func TestAPathWithManyBudgetNamesHasOneLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		turns := 0
		report := foreignDialects["Discord"]
		f := &foreign{limits: map[string]*foreignLimit{
			"/a": {limit: 1000, per: 10 * time.Minute, report: func(h http.Header, limit, left int64, reset time.Time) {
				report(h, limit, left, reset)
				turns++
				h.Set("X-RateLimit-Bucket", fmt.Sprint("b", turns%3))
			}},
			"/spent": {limit: 7, per: 10 * time.Minute, report: foreignDialects["Unix seconds"]},
			"/free":  {limit: 500, per: 10 * time.Minute, report: foreignDialects["Unix seconds"]},
		}}
		p := pacer.New(&pacer.Options{Base: f, MaxWait: pacer.NoWait, Threshold: pacer.Keep(0)})
		f.serve(t, p, 1, "/a")
		for range 200 {
			f.serve(t, p, 1, "/a")
		}
		for range 7 {
			f.serve(t, p, 1, "/spent")
		}
		for range 9 {
			f.serve(t, p, 1, "/free")
		}
		f.serve(t, p, 1, "/a")
		if b := p.Budgets(); len(b) != 4 { // two of /a: the first is that of all paths
			t.Errorf("%d budgets are kept: %+v", len(b), b)
		}
	})
}

// The number of budgets is bounded, even for a server with very many limiters.
func TestManyLimitersUnderOneCredentialAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &foreign{limits: map[string]*foreignLimit{}}
		var paths []string
		for i := range 200 {
			paths = append(paths, "/"+strings.Repeat("x", i/26+1)+string(rune('a'+i%26))+"/")
			f.limits[paths[i]] = &foreignLimit{limit: int64(i + 10), per: time.Minute, report: foreignDialects["Unix seconds"]}
		}
		p := pacer.New(&pacer.Options{Base: f})
		for _, path := range paths {
			f.serve(t, p, 1, path)
		}
		synctest.Wait()
		if n := len(p.Budgets()); n != 64 {
			t.Errorf("%d budgets are kept, want 64", n)
		}
		if waiting := slices.ContainsFunc(p.Budgets(), func(b pacer.Budget) bool { return b.InFlight != 0 || b.Waiting != 0 }); waiting {
			t.Errorf("some are in flight: %+v", p.Budgets())
		}
	})
}
