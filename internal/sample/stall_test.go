package sample

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/memstore"
)

// serve puts the backend behind a real edge that listens until the test ends, and returns its
// address.
func (k *bench) serve(o gateway.Options) (address string) {
	k.Helper()
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		k.Fatal(err)
	}
	route, err := weir.ParseRoute("/*")
	if err != nil {
		k.Fatal(err)
	}
	window, err := weir.ParseWindow("1000000 per minute by session or ip")
	if err != nil {
		k.Fatal(err)
	}
	policy := weir.Policy{Limiters: []weir.Limiter{{Name: "plenty", Routes: []weir.Route{route}, Windows: []weir.Window{window}}}}
	if o.Decider, err = weir.New(policy, store, weir.Options{Sources: identity.Sources()}); err != nil {
		k.Fatal(err)
	}
	if o.Identity, err = identity.New(identity.Options{Sessions: k.b.Sessions(), Tokens: k.b.Tokens(), Now: k.clock.now}); err != nil {
		k.Fatal(err)
	}
	o.Backend, o.OnDrain, o.Log = k.b.Handler(), k.b.Drain, slog.New(slog.NewTextHandler(k.log, nil))
	o.AccessLog = gateway.NewAccessLog(k.log, gateway.LogText, o.Log)
	k.Cleanup(func() { _ = o.AccessLog.Close() })
	g, err := gateway.New(o)
	if err != nil {
		k.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		k.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- g.Serve(ctx, l) }()
	k.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			k.Error(err)
		}
	})
	return l.Addr().String()
}

// pile adds n events of 4 KiB each to the feed of the only conversation, which has one event so
// far.
func (k *bench) pile(n int) {
	k.Helper()
	k.exec(fmt.Sprintf(`
		WITH RECURSIVE numbers(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < %d)
		INSERT INTO events (conversation, n, source, type, data, created_at)
		SELECT (SELECT n FROM conversations), n, 'visitor', 'x', json_object('x', printf('%%.*c', 4080, 'x')), 0 FROM numbers;
		UPDATE conversations SET events = %[1]d`, n+1))
}

// dialH2 opens a connection with HTTP/2 by prior knowledge, and requests a stream of events on it.
// window is the flow-control window of the stream.
func (k *bench) dialH2(address string, window uint32) *http2.Framer {
	k.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	_ = f.WriteWindowUpdate(0, window)
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "GET"}, {":scheme", "http"}, {":authority", "h"}, {":path", "/api/v1/widget/events"},
		{"accept", "text/event-stream"}, {"authorization", k.session},
	} {
		_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true})
	return f
}

// wantLetGo waits for the stream's line in the access log, which is written at its end.
func (k *bench) wantLetGo() {
	k.Helper()
	eventually(k.T, "the stream is in the access log", func() bool {
		return strings.Contains(k.log.String(), "path=/api/v1/widget/events status=200")
	})
	k.wantNobody()
}

// A stream whose client does not read is ended, long before the edge's own time-out, and is no
// longer held.
func TestAStalledReaderIsClosed(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	k := setUpWith(t, Options{Stall: 100 * time.Millisecond, Heartbeat: time.Hour})
	k.pile(5000) // more than all the buffers in between
	address := k.serve(gateway.Options{Limits: gateway.Limits{Stall: time.Hour}})

	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /api/v1/widget/events HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\nAuthorization: %s\r\n\r\n", k.session)
	k.wantLetGo()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if n, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") || n > 20<<20 {
		t.Errorf("the connection is still open after %d bytes: %v", n, err)
	}

	f := k.dialH2(address, 64<<10) // the connection is read, but the stream's window never grows
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if reset, ok := frame.(*http2.RSTStreamFrame); ok && reset.StreamID == 1 {
			break
		}
	}
	k.wantNobody()
}

// Over HTTP/2, the edge ends a connection that the client does not read at all.
func TestAnHTTP2ConnectionThatNobodyReadsIsLetGo(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	k := setUpWith(t, Options{Stall: 100 * time.Millisecond, Heartbeat: time.Hour})
	k.pile(5000)
	k.dialH2(k.serve(gateway.Options{Limits: gateway.Limits{Stall: 200 * time.Millisecond}}), 1<<30)
	k.wantLetGo()
}

// The deadline of a write does not apply to later ones: a stream may be quiet for longer. It is one
// second, so that a busy machine does not count as a stalled client.
func TestAQuietStreamOutlivesItsDeadlines(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	k := setUpWith(t, Options{Stall: time.Second, Heartbeat: 1200 * time.Millisecond})
	url := "http://" + k.serve(gateway.Options{Limits: gateway.Limits{Stall: time.Second}})
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(h2.CloseIdleConnections)
	for name, client := range map[string]*http.Client{"HTTP/1.1": http.DefaultClient, "HTTP/2": {Transport: h2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := k.in(t)
			k.client = client
			p := k.listen(url, k.session, "")
			if p.res.Proto != name && p.res.Proto != name+".0" {
				t.Fatalf("the stream came by %s", p.res.Proto)
			}
			n := p.event()
			for range 2 {
				if f, err := p.next(); err != nil || f.comment == "" {
					t.Fatalf("the quiet stream yields %+v, %v", f, err)
				}
			}
			p.leave()
			if n != 1 {
				t.Errorf("the first event is %d", n)
			}
		})
	}
}

// A slow body is the client's fault, not the store's.
func TestABodyThatStopsArrivingIs408(t *testing.T) {
	k := setUp(t)
	conn, err := net.Dial("tcp", k.serve(gateway.Options{Limits: gateway.Limits{Stall: 200 * time.Millisecond}}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /api/v1/widget/leads HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"email\":", k.session)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); answer.StatusCode != 408 || !strings.Contains(string(body), "request_timeout") {
		t.Errorf("half a body is answered %d %s (%v), want 408", answer.StatusCode, body, err)
	}
}
