package main

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// A nowhere is the cheapest possible ResponseWriter, so that only the middleware is measured.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n *nowhere) WriteHeader(int)             {}

// inProcess measures ServeHTTP alone.
func inProcess(rounds int) {
	fmt.Printf("\nServeHTTP alone, a limiter by address, served (GOMAXPROCS as is)\n\n")
	ns, allocs := make([][]float64, len(contestants)), make([]int64, len(contestants))
	for range rounds {
		for i, c := range contestants {
			h, err := c.wrap(http.HandlerFunc(bare))
			fail(err)
			r := testing.Benchmark(func(b *testing.B) { serveHTTP(b, h) })
			ns[i] = append(ns[i], float64(r.T.Nanoseconds())/float64(r.N))
			allocs[i] = r.AllocsPerOp()
		}
	}
	floor := median(ns[0])
	for i, c := range contestants {
		fmt.Printf("%-14s %8.0f ns  %+8.0f ns over the handler  %3d allocations\n", c.name, median(ns[i]), median(ns[i])-floor, allocs[i])
	}
}

func serveHTTP(b *testing.B, h http.Handler) {
	req, err := http.NewRequest("GET", "http://example.com"+path, nil)
	fail(err)
	req.RemoteAddr = "192.0.2.1:4242"
	w := &nowhere{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, req)
	}
}

func median(xs []float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	return s[len(s)/2]
}
