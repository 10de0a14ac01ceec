package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/weirlimit/weir/pacer"
)

// BenchmarkOverhead measures the figures of the table of overheads: go test -run '^$' -bench .
// ./pacer
func BenchmarkOverhead(b *testing.B) {
	for _, goroutines := range []int{1, 64} {
		b.Run(fmt.Sprintf("alone/%d", goroutines), func(b *testing.B) {
			send(b, goroutines, func(base http.RoundTripper) http.RoundTripper { return base })
		})
		b.Run(fmt.Sprintf("paced/%d", goroutines), func(b *testing.B) {
			send(b, goroutines, func(base http.RoundTripper) http.RoundTripper { return pacer.New(&pacer.Options{Base: base}) })
		})
	}
}
