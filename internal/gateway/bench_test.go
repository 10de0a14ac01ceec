package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// The target: BenchmarkGateway, with limiter and access log, is within 10 % of
// BenchmarkBareReverseProxy in one run. Both have the same client, upstream,
// sockets and transport, so they differ only in the gateway's own work. The bare
// proxy is httputil's with only Rewrite set.
//
//	go test -run - -bench 'Gateway|ReverseProxy' -count 10 ./internal/gateway

// trivialUpstream answers every request on a connection with the same bytes, as
// cheaply as possible.
func trivialUpstream(b *testing.B) *url.URL {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n{\"ok\":true}")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for {
					line, err := r.ReadSlice('\n')
					if err != nil {
						return
					}
					if len(line) > 2 {
						continue
					}
					if _, err := c.Write(answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return &url.URL{Scheme: "http", Host: l.Addr().String()}
}

// hammer sends sequential requests on kept connections, and reads the answers.
func hammer(b *testing.B, addr string) {
	b.Helper()
	request := []byte("GET /v1/wp/status HTTP/1.1\r\nHost: weir.test\r\nUser-Agent: bench/1\r\nAccept: */*\r\nAccept-Language: en\r\n\r\n")
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		r := bufio.NewReader(c)
		for pb.Next() {
			if _, err := c.Write(request); err != nil {
				b.Error(err)
				return
			}
			first := true
			for {
				line, err := r.ReadSlice('\n')
				if err != nil {
					b.Error(err)
					return
				}
				if first && string(line) != "HTTP/1.1 200 OK\r\n" {
					b.Errorf("%q", line)
					return
				}
				first = false
				if len(line) == 2 {
					break
				}
			}
			if _, err := r.Discard(len(`{"ok":true}`)); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkBareReverseProxy(b *testing.B) { benchmarkProxy(b, nil) }

// The same with the setting that makes most of the difference. This shows the
// gateway's own cost.
func BenchmarkPooledReverseProxy(b *testing.B) { benchmarkProxy(b, new(buffers)) }

func benchmarkProxy(b *testing.B, pool httputil.BufferPool) {
	target := trivialUpstream(b)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
	server := &http.Server{Handler: &httputil.ReverseProxy{
		Transport:  transport,
		BufferPool: pool,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.SetXForwarded()
		},
	}}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	b.Cleanup(func() { server.Close(); <-done; transport.CloseIdleConnections() })
	hammer(b, l.Addr().String())
}

func BenchmarkGateway(b *testing.B) { benchmarkGateway(b, nil, hammer) }

// BenchmarkGatewayHTTP2 is BenchmarkGateway with requests of HTTP/2 without TLS, one after another
// on each connection.
func BenchmarkGatewayHTTP2(b *testing.B) { benchmarkGateway(b, nil, hammerHTTP2) }

// BenchmarkGatewayByAgent is BenchmarkGateway with requests counted by agent, and
// its hash in the access log.
func BenchmarkGatewayByAgent(b *testing.B) {
	key, err := weir.ParseKey("ip+agent")
	if err != nil {
		b.Fatal(err)
	}
	benchmarkGateway(b, key, hammer)
}

// hammerHTTP2 is hammer with HTTP/2, by prior knowledge. It reads the frames of answers, and not
// what is in them, which is cheap.
func hammerHTTP2(b *testing.B, addr string) {
	b.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	enc.SetMaxDynamicTableSize(0) // so that the block can be sent again
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "weir.test"}, {":path", "/v1/wp/status"},
		{"user-agent", "bench/1"}, {"accept", "*/*"}, {"accept-language", "en"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		f := http2.NewFramer(c, bufio.NewReader(c))
		f.SetReuseFrames()
		_, err = io.WriteString(c, http2.ClientPreface)
		if err := errors.Join(err, f.WriteSettings(), f.WriteWindowUpdate(0, 1<<30)); err != nil {
			b.Error(err)
			return
		}
		for id := uint32(1); pb.Next(); id += 2 {
			if err := askFrames(f, id, block.Bytes()); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// askFrames sends a request, and reads frames until its answer has ended.
func askFrames(f *http2.Framer, id uint32, block []byte) error {
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: true, EndHeaders: true}); err != nil {
		return err
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		h := frame.Header()
		switch {
		case h.Type == http2.FrameRSTStream, h.Type == http2.FrameGoAway:
			return fmt.Errorf("stream %d: %v", id, frame)
		case h.Type == http2.FrameData && h.StreamID == id && h.Flags.Has(http2.FlagDataEndStream):
			return nil
		}
	}
}

// benchmarkGateway measures with the test policy. Its windows count by key, if
// there is one.
func benchmarkGateway(b *testing.B, key weir.Key, send func(b *testing.B, addr string)) {
	target := trivialUpstream(b)
	resolver, err := identity.New(identity.Options{})
	if err != nil {
		b.Fatal(err)
	}
	access := NewAccessLog(io.Discard, LogText, nil)
	p := testPolicy(b)
	for i := range p.Limiters {
		w := &p.Limiters[i].Windows[0]
		w.Limit = 1<<31 - 1 - int64(i)
		if key != nil {
			w.Key = key
		}
	}
	g, err := New(Options{Decider: testDecider(b, p), Identity: resolver, Sites: To(target), AccessLog: access, ValueHash: fakeHash, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(ctx, l) }()
	b.Cleanup(func() { cancel(); <-done; access.Close() })
	send(b, l.Addr().String())
}

// buffers pools the buffers for copying bodies.
type buffers struct{ pool sync.Pool }

func (p *buffers) Get() []byte {
	if b, ok := p.pool.Get().(*[32 << 10]byte); ok {
		return b[:]
	}
	return make([]byte, 32<<10)
}

func (p *buffers) Put(b []byte) { p.pool.Put((*[32 << 10]byte)(b)) }
