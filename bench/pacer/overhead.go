package main

import (
	"net/http"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/pacer"
)

// An overhead is the cost of a request while there is budget, with the pacer and without.
type overhead struct {
	name          string
	with, without price
}

type price struct{ ns, allocations, bytes int64 }

// overheads measures one goroutine, and 64 with one credential.
func overheads() []overhead {
	all := []overhead{{name: "one goroutine"}, {name: "64 goroutines"}}
	for i, many := range []int{1, 64} {
		// Three times each in turn, and the best counts, because interference only adds time.
		for range 3 {
			all[i].without = cheaper(all[i].without, priceOf(many, func(base http.RoundTripper) http.RoundTripper { return base }))
			all[i].with = cheaper(all[i].with, priceOf(many, func(base http.RoundTripper) http.RoundTripper { return pacer.New(&pacer.Options{Base: base}) }))
		}
	}
	return all
}

func cheaper(a, b price) price {
	if a.ns == 0 || b.ns < a.ns {
		return b
	}
	return a
}

func priceOf(goroutines int, wrap func(http.RoundTripper) http.RoundTripper) price {
	r := testing.Benchmark(func(b *testing.B) { send(b, goroutines, wrap) })
	return price{r.NsPerOp(), r.AllocsPerOp(), r.AllocedBytesPerOp()}
}

// send sends b.N requests from several goroutines over a base in memory.
func send(b *testing.B, goroutines int, wrap func(http.RoundTripper) http.RoundTripper) {
	base := newPrepared()
	defer base.stop()
	t := wrap(base)
	work := func(next func() bool) {
		r := request()
		for next() {
			answer, err := t.RoundTrip(r)
			if err != nil {
				b.Error(err)
				return
			}
			answer.Body.Close()
		}
	}
	first := true
	// the first response shows the budget
	work(func() bool { was := first; first = false; return was })
	b.ReportAllocs()
	b.ResetTimer()
	if goroutines == 1 {
		work(b.Loop)
		return
	}
	b.SetParallelism(max(goroutines/runtime.GOMAXPROCS(0), 1))
	b.RunParallel(func(next *testing.PB) { work(next.Next) })
}

// request returns a request that a limiter of the contract covers. Each goroutine has its own.
func request() *http.Request {
	r, err := http.NewRequest(http.MethodGet, "http://api.example/v1/wp/status", nil)
	if err != nil {
		panic(err) // a constant
	}
	r.Header.Set("Authorization", "Bearer wpt_sqppjy5uqb_x4mzg4oft3pbcjjlgxgjx7qheatdd2a5extl6ki")
	return r
}

// A prepared transport answers from memory at once, with the fields of a nearly full window. Its
// Date is right, because the answer is prepared again every second.
type prepared struct {
	answer atomic.Pointer[http.Response]
	done   chan struct{}
	gone   chan struct{}
}

func newPrepared() *prepared {
	p := &prepared{done: make(chan struct{}), gone: make(chan struct{})}
	reset := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
	p.prepare(reset)
	go func() {
		defer close(p.gone)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.prepare(reset)
			case <-p.done:
				return
			}
		}
	}()
	return p
}

func (p *prepared) stop() { close(p.done); <-p.gone }

func (p *prepared) prepare(reset string) {
	p.answer.Store(&http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
		Header: http.Header{
			"Content-Type":          {"application/json"},
			"Date":                  {time.Now().UTC().Format(http.TimeFormat)},
			"X-Ratelimit-Limit":     {"1000000"},
			"X-Ratelimit-Remaining": {"999000"},
			"X-Ratelimit-Reset":     {reset},
		},
	})
}

func (p *prepared) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := *p.answer.Load()
	answer.Request = r
	return &answer, nil
}
