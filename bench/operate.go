package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	weirhttp "github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/denial"
	"github.com/weirlimit/weir/internal/telemetry"
	"github.com/weirlimit/weir/internal/watch"
	weirmem "github.com/weirlimit/weir/memstore"
)

// The cost of observability for requests: the same middleware bare; with metrics, top callers and
// denial ids, as in weir serve; and with a candidate policy in addition.

// A view is what is switched on.
type view struct {
	name                string
	observed, candidate bool
}

var views = []view{
	{"middleware", false, false},
	{"observed", true, false},
	{"candidate", false, true},
	{"observed, candidate", true, true},
}

// cases are the limits of a run: with one no request is refused, with the other nearly every
// request is.
var cases = []struct {
	name  string
	limit int64
}{{"served", plenty}, {"refused", 1}}

func (v view) wrap(limit int64) (http.Handler, *weir.Decider, error) {
	window, err := weir.ParseWindow(fmt.Sprintf("%d per day by ip", limit))
	if err != nil {
		return nil, nil, err
	}
	policy := weir.Policy{Limiters: []weir.Limiter{{
		Name:    "widget-typing",
		Routes:  []weir.Route{{Method: "GET", Path: path}},
		Windows: []weir.Window{window},
	}}}
	store, err := weirmem.New(weirmem.Options{})
	if err != nil {
		return nil, nil, err
	}
	recorder, err := watch.New(watch.Options{})
	if err != nil {
		return nil, nil, err
	}
	metrics := telemetry.New(telemetry.Options{})
	decider, err := weir.New(policy, store, weir.Options{OnCandidate: func(c weir.Compared) {
		metrics.Candidate(c)
		recorder.Candidate(c)
	}})
	if err != nil {
		return nil, nil, err
	}
	if v.candidate {
		beside, err := weirmem.New(weirmem.Options{Memory: weirmem.DefaultMemory / 10})
		if err != nil {
			return nil, nil, err
		}
		if err := decider.SetCandidate(&policy, beside); err != nil {
			return nil, nil, err
		}
	}
	o := weirhttp.Options{}
	if o.Identity, err = identity.New(identity.Options{}); err != nil {
		return nil, nil, err
	}
	if v.observed {
		secret := make([]byte, 32)
		sealer, err := denial.New(func() []byte { return secret }, func() string { return "01234567" }, rand.Reader, nil)
		if err != nil {
			return nil, nil, err
		}
		o.Denial = sealer.ID
		o.Observe = func(x answer.Observation) {
			metrics.Observe(x)
			recorder.Observe(x)
		}
	}
	m, err := weirhttp.New(decider, o)
	if err != nil {
		return nil, nil, err
	}
	return m.Wrap(http.HandlerFunc(bare)), decider, nil
}

// viewFor returns the handler of "view VIEW CASE".
func viewFor(name string) (http.Handler, error) {
	for _, v := range views {
		for _, c := range cases {
			if name == v.at(c.name) {
				h, _, err := v.wrap(c.limit)
				return h, err
			}
		}
	}
	return nil, fmt.Errorf("serve %q: no such view", name)
}

func (v view) at(name string) string { return "view " + v.name + " " + name }

// operate measures the cost of observability.
func operate(rounds int, length time.Duration) error {
	for _, c := range cases {
		fmt.Printf("\nan operator's view, %s: ServeHTTP alone\n\n", c.name)
		if err := operateInProcess(rounds, c.limit); err != nil {
			return err
		}
		fmt.Printf("\nan operator's view, %s: over sockets (server on one core, wrk, 64 connections)\n\n", c.name)
		var servers []*server
		for _, v := range views {
			s, err := startSelf(v.at(c.name))
			if err != nil {
				return err
			}
			defer s.stop()
			s.refuses = c.name == "refused"
			servers = append(servers, s)
		}
		if err := compare(servers, rounds, length); err != nil {
			return err
		}
	}
	return reloads(length)
}

func operateInProcess(rounds int, limit int64) error {
	ns, allocs := make([][]float64, len(views)), make([]int64, len(views))
	for range rounds {
		for i, v := range views {
			h, _, err := v.wrap(limit)
			if err != nil {
				return err
			}
			r := testing.Benchmark(func(b *testing.B) { serveHTTP(b, h) })
			ns[i] = append(ns[i], float64(r.T.Nanoseconds())/float64(r.N))
			allocs[i] = r.AllocsPerOp()
		}
	}
	for i, v := range views {
		fmt.Printf("%-22s %8.0f ns  %+6.0f ns  %3d allocations\n", v.name, median(ns[i]), median(ns[i])-median(ns[0]), allocs[i])
	}
	return nil
}

// reloads prints the longest request while policies of a thousand limiters are swapped every 50 ms,
// and without swaps.
func reloads(length time.Duration) error {
	h, decider, err := views[1].wrap(plenty)
	if err != nil {
		return err
	}
	live := decider.Policy()
	big := func(n int) weir.Policy {
		p := weir.Policy{Limiters: slices.Clone(live.Limiters)}
		for i := range n {
			l := live.Limiters[0]
			l.Name = fmt.Sprintf("l%d", i)
			l.Routes = nil
			for j := range 10 {
				l.Routes = append(l.Routes, weir.Route{Path: fmt.Sprintf("/other/%d/%d", i, j)})
			}
			p.Limiters = append(p.Limiters, l)
		}
		return p
	}
	fmt.Printf("\na reload under load: two goroutines ask all the time, for %v\n\n", 2*length)
	for _, limiters := range []int{0, 8, 999} {
		ctx, stop := context.WithTimeout(context.Background(), 2*length)
		var asking sync.WaitGroup
		longest := make([][]time.Duration, 2)
		for i := range longest {
			asking.Go(func() { longest[i] = ask(ctx, h) })
		}
		swaps := 0
		for p := big(limiters); ctx.Err() == nil; {
			if limiters > 0 {
				if err := decider.Swap(p); err != nil {
					stop()
					return err
				}
				swaps++
			}
			time.Sleep(50 * time.Millisecond)
		}
		asking.Wait()
		stop()
		all := slices.Concat(longest...)
		slices.Sort(all)
		fmt.Printf("%4d swaps of %4d limiters: the longest requests of each 10,000 took %v at the median, %v at most\n",
			swaps, limiters+1, all[len(all)/2].Round(time.Microsecond), all[len(all)-1].Round(time.Microsecond))
	}
	return nil
}

// ask returns the longest request of each 10,000.
func ask(ctx context.Context, h http.Handler) (longest []time.Duration) {
	req, err := http.NewRequest("GET", "http://example.com"+path, nil)
	fail(err)
	req.RemoteAddr = "192.0.2.1:4242"
	w := &nowhere{header: http.Header{}}
	for ctx.Err() == nil {
		slowest := time.Duration(0)
		for range 10_000 {
			clear(w.header)
			start := time.Now()
			h.ServeHTTP(w, req)
			slowest = max(slowest, time.Since(start))
		}
		longest = append(longest, slowest)
	}
	return longest
}

func isView(name string) bool { return strings.HasPrefix(name, "view ") }
