package pacer_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/pacer"
)

// A foreign server has limiters by path, each with one fixed window, and reports
// them in its own dialect.
type foreign struct {
	limits  map[string]*foreignLimit // by the prefix of a path
	latency time.Duration
	silent  bool // whether it sends no Date

	mu      sync.Mutex
	refused map[string]int         // by path
	at      map[string][]time.Time // of served requests, by path
	first   time.Time
}

type foreignLimit struct {
	limit  int64
	per    time.Duration
	report func(h http.Header, limit, left int64, reset time.Time)

	spent int64
	ends  time.Time
}

func (f *foreign) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
	pass(f.latency)
	response := f.decide(r)
	pass(f.latency)
	return response, r.Context().Err()
}

func (f *foreign) decide(r *http.Request) *http.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused == nil {
		f.refused, f.at, f.first = map[string]int{}, map[string][]time.Time{}, time.Now()
	}
	h := http.Header{}
	if !f.silent {
		h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	response := &http.Response{StatusCode: 200, Header: h, Body: http.NoBody, Request: r}
	for path, l := range f.limits {
		if !strings.HasPrefix(r.URL.Path, path) {
			continue
		}
		if now := time.Now(); !now.Before(l.ends) {
			l.spent, l.ends = 0, now.Add(l.per)
		}
		if l.spent == l.limit {
			f.refused[r.URL.Path]++
			response.StatusCode = 429
			h.Set("Retry-After", strconv.FormatFloat(math.Ceil(time.Until(l.ends).Seconds()*10)/10, 'f', -1, 64))
		} else {
			l.spent++
			f.at[r.URL.Path] = append(f.at[r.URL.Path], time.Now())
		}
		l.report(h, l.limit, l.limit-l.spent, l.ends)
	}
	return response
}

// classic returns a dialect of three fields with its own form of Reset.
func classic(prefix string, reset func(time.Time) string) func(http.Header, int64, int64, time.Time) {
	return func(h http.Header, limit, left int64, at time.Time) {
		h.Set(prefix+"-Limit", fmt.Sprint(limit))
		h.Set(prefix+"-Remaining", fmt.Sprint(left))
		h.Set(prefix+"-Reset", reset(at))
	}
}

func secondsLeft(at time.Time) string { return fmt.Sprint(math.Ceil(time.Until(at).Seconds())) }
func unixUp(at time.Time) string      { return unix(at.Add(time.Second - 1)) }

// foreignDialects are the ways in which servers report budgets. If a caller is
// paced with any of them, it is not refused.
var foreignDialects = map[string]func(h http.Header, limit, left int64, reset time.Time){
	"Unix seconds":        classic("X-RateLimit", unixUp),
	"seconds left":        classic("X-RateLimit", secondsLeft),
	"draft 3":             classic("RateLimit", secondsLeft),
	"X":                   classic("X-Rate-Limit", unixUp),
	"Unix milliseconds":   classic("X-RateLimit", func(at time.Time) string { return fmt.Sprint(at.UnixMilli()) }),
	"RFC 3339":            classic("X-RateLimit", func(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }),
	"an HTTP date":        classic("X-RateLimit", func(at time.Time) string { return at.Add(time.Second - 1).UTC().Format(http.TimeFormat) }),
	"a duration":          classic("X-RateLimit", func(at time.Time) string { return time.Until(at).Round(time.Millisecond).String() }),
	"a fraction of Unix":  classic("X-RateLimit", func(at time.Time) string { return fmt.Sprintf("%.3f", float64(at.UnixMicro())/1e6) }),
	"milliseconds, and w": milliseconds,
	"Envoy": func(h http.Header, limit, left int64, at time.Time) {
		classic("X-RateLimit", secondsLeft)(h, limit, left, at)
		h.Set("X-RateLimit-Limit", fmt.Sprintf("%d, %d;w=10, 1000;w=3600", limit, limit))
	},
	"Discord": func(h http.Header, limit, left int64, at time.Time) {
		classic("X-RateLimit", unixUp)(h, limit, left, at)
		h.Set("X-RateLimit-Reset-After", fmt.Sprintf("%.3f", time.Until(at).Seconds()))
		h.Set("X-RateLimit-Bucket", "abcd1234")
	},
	"draft 7": func(h http.Header, limit, left int64, at time.Time) {
		h.Set("RateLimit", fmt.Sprintf("limit=%d, remaining=%d, reset=%s", limit, left, secondsLeft(at)))
	},
	"draft 10": func(h http.Header, limit, left int64, at time.Time) {
		h.Set("RateLimit-Policy", fmt.Sprintf(`"burst";q=%d;w=10, "day";q=100000;w=86400`, limit))
		h.Set("RateLimit", fmt.Sprintf(`"day";r=9999;t=86000, "burst";r=%d;t=%s`, left, secondsLeft(at)))
	},
	"draft 10 without a policy": func(h http.Header, limit, left int64, at time.Time) {
		h.Set("RateLimit", fmt.Sprintf(`"burst";r=%d;t=%s`, left, secondsLeft(at)))
	},
	"OpenAI": func(h http.Header, limit, left int64, at time.Time) {
		h.Set("x-ratelimit-limit-requests", fmt.Sprint(limit))
		h.Set("x-ratelimit-remaining-requests", fmt.Sprint(left))
		h.Set("x-ratelimit-reset-requests", time.Until(at).Round(time.Millisecond).String())
		h.Set("x-ratelimit-limit-tokens", "150000")
		h.Set("x-ratelimit-remaining-tokens", "3")
		h.Set("x-ratelimit-reset-tokens", "6m0s")
	},
	"Anthropic": func(h http.Header, limit, left int64, at time.Time) {
		h.Set("anthropic-ratelimit-requests-limit", fmt.Sprint(limit))
		h.Set("anthropic-ratelimit-requests-remaining", fmt.Sprint(left))
		h.Set("anthropic-ratelimit-requests-reset", at.Add(time.Second-1).UTC().Format(time.RFC3339))
	},
}

func milliseconds(h http.Header, limit, left int64, at time.Time) {
	classic("RateLimit", func(at time.Time) string { return fmt.Sprint(time.Until(at).Milliseconds()) })(h, limit, left, at)
	h.Set("RateLimit-Limit", fmt.Sprintf("%d;w=10", limit))
}

func request(t *testing.T, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequest("POST", "http://api.example.com"+path, strings.NewReader("a body"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret")
	return r
}

// serve sends n requests through a transport, and fails the test unless each is served.
func (f *foreign) serve(t *testing.T, p http.RoundTripper, n int, path string) {
	t.Helper()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if response, err := p.RoundTrip(request(t, path)); err != nil || response.StatusCode != 200 {
				t.Errorf("%s: %v, %v", path, response, err)
			}
		})
	}
	all.Wait()
}

func TestEveryDialectIsPaced(t *testing.T) {
	for name, report := range foreignDialects {
		for _, silent := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", no Date: ", silent), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					pass(345 * time.Millisecond) // windows start within a second
					f := &foreign{limits: map[string]*foreignLimit{"/": {limit: 20, per: 10 * time.Second, report: report}}, latency: 20 * time.Millisecond, silent: silent}
					p := pacer.New(&pacer.Options{Base: f, Threshold: pacer.Keep(0)})
					f.serve(t, p, 1, "/api/x") // the first response shows that there is a limiter
					began := time.Now()
					f.serve(t, p, 99, "/api/x") // five windows in all
					if n := f.refused["/api/x"]; n != 0 {
						t.Errorf("%d were refused", n)
					}
					if took := time.Since(began); took < 39*time.Second || took > 48*time.Second {
						t.Errorf("four Resets took %v", took)
					}
				})
			})
		}
	}
}

// A spent budget of tokens delays requests, although enough requests are left.
func TestSpentTokensAreWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := map[string]string{"Date": "now", "x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-requests": "1s",
			"x-ratelimit-limit-tokens": "150000", "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "2m30s"}
		s := &script{replies: []reply{{status: 200, header: h}, {status: 200, header: with(h, "x-ratelimit-remaining-tokens", "150000")}}}
		p := pacer.New(&pacer.Options{Base: s})
		for range 3 {
			if _, err := p.RoundTrip(request(t, "/v1/chat")); err != nil {
				t.Fatal(err)
			}
		}
		if !after(s.at[1], 150*time.Second) || s.at[2]-s.at[1] > time.Second {
			t.Errorf("sent at %v", s.at)
		}
	})
}
