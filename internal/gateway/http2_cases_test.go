package gateway

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// A frameCase is what a client sends on a new connection, after the prefaces, and what must come
// back.
type frameCase struct {
	section string // of RFC 9113, or of RFC 7541 if it begins with HPACK
	sent    string
	send    func(c *peer)
	want    string // outcomes that are right (peer.outcome), separated by " | "
	std     string // the outcome with net/http, if it is another one
	// final is whether the connection need not work afterwards. Without it a request must be served
	// after every outcome that leaves the connection open.
	final bool
}

// runFrameCases runs each case on a connection of its own, in clear and over TLS.
func runFrameCases(t *testing.T, cases []frameCase) {
	t.Helper()
	for _, secure := range []bool{false, true} {
		b := newGated(t)
		var config *tls.Config
		e := open(t, nil, func(o *Options) {
			b.use(o)
			if secure {
				config = &tls.Config{ServerName: "127.0.0.1", RootCAs: secured(t, o)}
			}
		})
		outcomes := make([]string, len(cases))
		var under sync.WaitGroup
		for i, test := range cases {
			under.Go(func() { outcomes[i] = test.run(e, b, config) })
		}
		under.Wait()
		for i, test := range cases {
			want := test.want
			if e.byNetHTTP() && test.std != "" {
				want = test.std
			}
			if !isOneOf(outcomes[i], want) {
				t.Errorf("%s, %s; TLS %v: the outcome is %q, want %q", test.section, test.sent, secure, outcomes[i], want)
			}
		}
		if t.Failed() && testing.Verbose() {
			t.Logf("log:\n%s", e.log)
		}
	}
}

// run returns the outcome.
func (test *frameCase) run(e *edge, b *gated, config *tls.Config) string {
	c, err := e.frames(config)
	if err != nil {
		return "broken: " + err.Error()
	}
	defer c.Close()
	c.gate, c.release = b.gate()
	defer c.release()
	if err := c.start(); err != nil {
		return "broken: " + err.Error()
	}
	test.send(c)
	outcome := c.outcome()
	if c.ended != nil || test.final {
		return outcome
	}
	const id = 10_001 // above all that the cases use
	c.get(id, "/v1/wp/x")
	s := c.answered(id)
	switch {
	case s.outcome() == "200":
		return outcome
	case c.ended != nil && isEnd(c.ended) && c.goAway != nil && c.goAway.ErrCode == http2.ErrCodeNo:
		return outcome + ", then the connection ends"
	}
	return fmt.Sprintf("%s, but then a request gets %q (%v)", outcome, s.outcome(), c.ended)
}

// A gated is an upstream that answers by its path:
//
//	/v1/wp/hold     when the gate that X-Gate names has been opened
//	/v1/wp/bytes    with as many bytes as the query says
//	/v1/wp/echo     with the length and the trailers of the body that has come
//	/v1/wp/unread   when the gate has been opened, without reading the body
//	anything else   "ok"
type gated struct {
	use func(*Options)

	mu    sync.Mutex
	gates map[string]chan struct{}

	reached atomic.Int64 // requests, ever
	under   atomic.Int64 // requests under way
	most    atomic.Int64 // of them at a time

	zeros [16 << 10]byte // of /bytes
}

func newGated(t testing.TB) *gated {
	b := &gated{gates: map[string]chan struct{}{}}
	b.use = behind(t, b.serve)
	return b
}

// gate returns a new gate, and what opens it.
func (b *gated) gate() (name string, release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name = strconv.Itoa(len(b.gates) + 1)
	gate := make(chan struct{})
	b.gates[name] = gate
	return name, sync.OnceFunc(func() { close(gate) })
}

// wait waits for the gate of a request, or for its end.
func (b *gated) wait(r *http.Request) {
	b.mu.Lock()
	gate := b.gates[r.Header.Get("X-Gate")]
	b.mu.Unlock()
	select {
	case <-gate:
	case <-r.Context().Done():
	}
}

func (b *gated) serve(w http.ResponseWriter, r *http.Request) {
	b.reached.Add(1)
	under := b.under.Add(1)
	for most := b.most.Load(); under > most && !b.most.CompareAndSwap(most, under); most = b.most.Load() {
	}
	defer b.under.Add(-1)
	switch r.URL.Path {
	case "/v1/wp/hold":
		b.wait(r)
	case "/v1/wp/unread":
		b.serveUnread(w, r)
		return
	case "/v1/wp/bytes":
		n, _ := strconv.Atoi(r.URL.RawQuery)
		w.Header().Set("Content-Length", r.URL.RawQuery)
		for n > 0 && r.Context().Err() == nil {
			m, err := w.Write(b.zeros[:min(n, len(b.zeros))])
			if n -= m; err != nil {
				return
			}
		}
		return
	case "/v1/wp/echo":
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, "%d %s", n, strings.Join(r.Trailer.Values("X-Sum"), ","))
		return
	}
	fmt.Fprint(w, "ok")
}

// serveUnread answers when the gate has been opened. Until then nothing of the body is read, which
// net/http would do on its own.
func (b *gated) serveUnread(w http.ResponseWriter, r *http.Request) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	b.wait(r)
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
	_ = pace.CloseWrite(c)
	_, _ = io.Copy(io.Discard, c) // else a reset could overtake the answer
}

// frameOf returns a frame as bytes; length is what its head says.
func frameOf(length int, kind http2.FrameType, flags http2.Flags, id uint32, payload string) string {
	return string([]byte{byte(length >> 16), byte(length >> 8), byte(length), byte(kind), byte(flags), byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}) + payload
}

// check makes an outcome of what a case looks at itself.
func (c *peer) check(ok bool, format string, args ...any) {
	if !ok && c.ended == nil {
		c.ended = fmt.Errorf(format, args...)
	}
}
