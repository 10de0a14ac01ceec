package accesslog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/weirlimit/weir/internal/accesslog"
)

// combinedLog returns n lines of about 200 bytes, perSecond of them in each second.
func combinedLog(n, perSecond int) []byte {
	var b bytes.Buffer
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range n {
		fmt.Fprintf(&b, "203.0.113.%d - - [%s] \"POST /api/v1/widget/messages/%d?after=%d HTTP/1.1\" 200 %d \"https://shop.example.com/\" "+
			"\"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0\"\n",
			i%250, start.Add(time.Duration(i/perSecond)*time.Second).Format("02/Jan/2006:15:04:05 -0700"), i%1000, i, 100+i%5000)
	}
	return b.Bytes()
}

func readAll(tb testing.TB, o accesslog.Options) (lines int) {
	tb.Helper()
	r, err := accesslog.Open(o)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			tb.Error(err)
		}
	}()
	var l accesslog.Line
	for {
		switch err := r.Next(&l); {
		case errors.Is(err, io.EOF):
			return lines
		case err != nil:
			tb.Fatal(err)
		}
		lines++
	}
}

func zipped(text []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(text)
	_ = w.Close()
	return b.Bytes()
}

func zstded(text []byte) []byte {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return w.EncodeAll(text, nil)
}

// BenchmarkNext reads lines from memory; ns/line and lines/s are of the whole, allocs/op of all the lines together.
func BenchmarkNext(b *testing.B) {
	const lines = 200_000
	plain := combinedLog(lines, 5000)
	for _, bench := range []struct {
		name string
		file []byte
	}{
		{"combined", plain},
		{"combined gzip", zipped(plain)},
		{"combined zstd", zstded(plain)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetBytes(int64(len(plain)))
			b.ReportAllocs()
			for b.Loop() {
				if n := readAll(b, accesslog.Options{Stdin: bytes.NewReader(bench.file)}); n != lines {
					b.Fatalf("%d lines of %d", n, lines)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/lines, "ns/line")
			b.ReportMetric(float64(b.N)*lines/b.Elapsed().Seconds(), "lines/s")
		})
	}
}
