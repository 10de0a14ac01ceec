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

// combinedLog returns n lines of about 200 bytes, perSecond lines for each second.
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

// caddyLog returns n JSON lines of about 700 bytes.
func caddyLog(n, perSecond int) []byte {
	var b bytes.Buffer
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano()
	for i := range n {
		at := start + int64(i)*int64(time.Second)/int64(perSecond)
		fmt.Fprintf(&b, `{"level":"info","ts":%d.%06d,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_ip":"203.0.113.%d",`+
			`"remote_port":"41342","client_ip":"203.0.113.%d","proto":"HTTP/2.0","method":"POST","host":"shop.example.com","uri":"/api/v1/widget/messages/%d",`+
			`"headers":{"User-Agent":["Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0"],"Accept":["*/*"],`+
			`"Accept-Encoding":["gzip, deflate, br"]},"tls":{"resumed":false,"version":772,"cipher_suite":4865,"proto":"h2","server_name":"shop.example.com"}},`+
			`"bytes_read":0,"user_id":"","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"],"Content-Type":["application/json"]}}`+"\n",
			at/1e9, at%1e9/1e3, i%250, i%250, i%1000)
	}
	return b.Bytes()
}

// nginxLog returns n JSON lines of about 250 bytes.
func nginxLog(n, perSecond int) []byte {
	var b bytes.Buffer
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range n {
		fmt.Fprintf(&b, `{"time":"%s","remote_addr":"203.0.113.%d","request":"POST /api/v1/widget/messages/%d HTTP/1.1","status":200,`+
			`"http_user_agent":"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0","request_time":0.012}`+"\n",
			start.Add(time.Duration(i/perSecond)*time.Second).Format(time.RFC3339), i%250, i%1000)
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

// BenchmarkNext reads lines from memory. ns/line and lines/s are averages; allocs/op is for all
// lines together.
func BenchmarkNext(b *testing.B) {
	const lines = 200_000
	plain, nginx, caddy := combinedLog(lines, 5000), nginxLog(lines, 5000), caddyLog(lines, 5000)
	for _, bench := range []struct {
		name, format string
		file         []byte
		size         int
	}{
		{"combined", "", plain, len(plain)},
		{"log_format", `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`, plain, len(plain)},
		{"combined gzip", "", zipped(plain), len(plain)},
		{"combined zstd", "", zstded(plain), len(plain)},
		{"nginx-json", "", nginx, len(nginx)},
		{"caddy", "", caddy, len(caddy)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetBytes(int64(bench.size))
			b.ReportAllocs()
			for b.Loop() {
				if n := readAll(b, accesslog.Options{Stdin: bytes.NewReader(bench.file), Format: bench.format}); n != lines {
					b.Fatalf("%d lines of %d", n, lines)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/lines, "ns/line")
			b.ReportMetric(float64(b.N)*lines/b.Elapsed().Seconds(), "lines/s")
		})
	}
}
