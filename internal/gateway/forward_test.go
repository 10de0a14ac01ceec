package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// do sends a request over HTTP/2, and returns its answer, whose body is not read.
func do(t testing.TB, client *http.Client, method, url string, body io.Reader) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// All requests share the connections to an upstream, whatever their clients speak.
func TestHTTP2SharesTheKeptConnections(t *testing.T) {
	o := answering(t, ok200)
	e := open(t, nil, o.use)
	free := func() {
		eventually(t, "the connection is put back", func() bool { return e.gateway.Upstreams()[0].Kept == 1 })
	}
	c, client := e.caller(), h2c(t)
	for range 5 {
		c.request("GET /v1/wp/x")
		c.readAnswer("GET")
		free()
		for method, body := range map[string]string{"GET": "", "POST": "short", "PUT": strings.Repeat("long", 10<<10)} {
			if res := do(t, client, method, e.url("/v1/wp/x"), strings.NewReader(body)); text(t, res) != "ok" || res.ProtoMajor != 2 {
				t.Errorf("%s: %d, %s", method, res.StatusCode, res.Proto)
			}
			free()
		}
	}
	if n := o.conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// A stream has at most one request, and a request that was sent is not sent again
// (docs/engines.md).
func TestNoRequestIsRepeatedOverHTTP2(t *testing.T) {
	for _, partial := range []string{"", "H", "HTTP/1.1 103 Early Hints\r\n\r\n"} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT"} {
			o := newOrigin(t, func(s *served) {
				for r := s.request(); r != nil; r = s.request() {
					_, _ = io.Copy(io.Discard, r.Body)
					if r.URL.Path == "/v1/wp/x" {
						s.answers("%s", partial)
						return
					}
					s.answers(ok200)
				}
			})
			e := open(t, nil, o.use)
			client := h2c(t)
			text(t, do(t, client, "GET", e.url("/v1/wp/first"), nil))
			if res := do(t, client, method, e.url("/v1/wp/x"), nil); res.StatusCode != http.StatusBadGateway || limitOf(res.Header) != wpPlugin {
				t.Errorf("%s, %q: %d %v", method, partial, res.StatusCode, res.Header)
			}
			if n := o.requests.Load(); n != 2 {
				t.Errorf("%s, %q: the upstream has seen %d requests, want 2", method, partial, n)
			}
			eventually(t, "nothing is under way", func() bool { return e.gateway.Upstreams()[0].Busy == 0 })
		}
	}
}

// If the upstream has closed a kept connection, a request goes to another one. net/http may not
// know yet that it has ended (docs/engines.md).
func TestAnEndedConnectionIsNotUsedOverHTTP2(t *testing.T) {
	if testEngine == EngineStd {
		return
	}
	closed := make(chan bool)
	o := newOrigin(t, func(s *served) {
		r := s.request()
		if r == nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		s.answers(ok200)
		s.Conn.Close()
		closed <- true
	})
	e := open(t, nil, o.use)
	client := h2c(t)
	for n := range 10 {
		for _, body := range []string{"", "short", strings.Repeat("long", 10<<10)} {
			res := do(t, client, "POST", e.url("/v1/wp/x"), strings.NewReader(body))
			if got := text(t, res); got != "ok" {
				t.Fatalf("request %d: %d %s", n, res.StatusCode, got)
			}
			<-closed
		}
	}
	if n := o.requests.Load(); n != 30 {
		t.Errorf("the upstream has seen %d requests, want 30", n)
	}
}

// The upstream's answers are read as strictly as for HTTP/1.1 (docs/engines.md).
func TestAnInvalidAnswerIs502OverHTTP2(t *testing.T) {
	for name, answer := range map[string]string{
		"both lengths":     "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
		"two lengths":      "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nevil!",
		"bare line feeds":  "HTTP/1.1 200 OK\nContent-Length: 4\n\nevil",
		"status 099":       "HTTP/1.1 099 Evil\r\nContent-Length: 4\r\n\r\nevil",
		"101 unasked":      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nevil",
		"a bomb of fields": "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Evil: 1\r\n", 200<<10) + "\r\nevil",
	} {
		o := newOrigin(t, func(s *served) {
			for r := s.request(); r != nil; r = s.request() {
				s.answers("%s", answer)
			}
		})
		e := open(t, nil, o.use)
		for range 2 {
			res := do(t, h2c(t), "POST", e.url("/v1/wp/x"), nil)
			if body := text(t, res); res.StatusCode != 502 || !strings.Contains(body, "upstream_unavailable") || limitOf(res.Header) != wpPlugin {
				t.Errorf("%s: %d %.200q %.200v", name, res.StatusCode, body, res.Header)
			}
		}
		if n := o.conns.Load(); n != 2 {
			t.Errorf("%s: %d connections for two requests", name, n)
		}
	}
}

// The head of an answer without a length is passed on before its body, and each piece as it comes,
// also while the request is still arriving.
func TestBothWaysStreamAtOnceOverHTTP2(t *testing.T) {
	o := newOrigin(t, func(s *served) {
		r := s.request()
		if r == nil {
			return
		}
		s.answers("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		s.echoes(r)
	})
	e := open(t, nil, o.use)
	body, sends := io.Pipe()
	res := do(t, h2c(t), "POST", e.url("/v1/wp/x"), body)
	for _, b := range []string{"a", "b", "c"} {
		if _, err := io.WriteString(sends, b); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 1)
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != b {
			t.Fatalf("%q and %v, want %q", got, err, b)
		}
	}
	_ = sends.Close()
	if rest := text(t, res); rest != "" {
		t.Errorf("%q follows", rest)
	}
}

// If a client cancels its stream, its request to the upstream ends, and other streams of the
// connection live on.
func TestACancelledStreamEndsTheUpstreamsRequest(t *testing.T) {
	arrived, gone := make(chan bool, 1), make(chan bool, 1)
	e := open(t, nil, behind(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/wp/quiet" {
			arrived <- true
			<-r.Context().Done()
			gone <- true
		}
	}))
	client := h2c(t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	left := make(chan error, 1)
	go func() {
		r, err := http.NewRequestWithContext(ctx, "GET", e.url("/v1/wp/quiet"), nil)
		if err == nil {
			_, err = client.Do(r)
		}
		left <- err
	}()
	<-arrived
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	within(t, patience, "the upstream learns that the client has gone", gone)
	if res := do(t, client, "GET", e.url("/v1/wp/x"), nil); res.StatusCode != http.StatusOK {
		t.Errorf("another stream: %d", res.StatusCode)
	}
	eventually(t, "nothing is under way", func() bool { return e.gateway.InFlight() == 0 && e.gateway.Upstreams()[0].Busy == 0 })
	e.stop()
	if access := e.access.String(); !strings.Contains(access, "status=499") || !strings.Contains(access, "status=200") {
		t.Errorf("access log %q", access)
	}
	if log := e.log.String(); log != "" {
		t.Errorf("log %q", log)
	}
}

// Informational answers pass, without the fields of a limiter and of the connection. Only 100
// belongs to one hop.
func TestInformationalAnswersPassOverHTTP2(t *testing.T) {
	o := answering(t, "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nX-RateLimit-Limit: 7\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n"+
		"HTTP/1.1 103 Early Hints\r\nLink: </b.css>\r\n\r\n"+ok200)
	e := open(t, nil, o.use)
	var links []string
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		if code != http.StatusEarlyHints || limitOf(http.Header(h)) != "" || h.Get("X-Hop") != "" || h.Get("Content-Length") != "" {
			t.Errorf("%d %v", code, h)
		}
		links = append(links, h.Get("Link"))
		return nil
	}}
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "GET", e.url("/v1/wp/x"), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := h2c(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if body := text(t, res); body != "ok" || limitOf(res.Header) != wpPlugin || res.Header.Get("Link") != "" {
		t.Errorf("%q %v", body, res.Header)
	}
	if !slices.Equal(links, []string{"</a.css>", "</b.css>"}) {
		t.Errorf("links %q", links)
	}
}

// An answer that breaks off ends its stream with an error, never as if it were whole.
func TestHalfAnAnswerResetsTheStream(t *testing.T) {
	for name, answer := range map[string]string{
		"short":  "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
		"long":   "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("half", 10<<10),
		"chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
	} {
		o := newOrigin(t, func(s *served) {
			if s.request() != nil {
				s.answers("%s", answer)
			}
		})
		e := open(t, nil, o.use)
		res, err := h2c(t).Get(e.url("/v1/wp/x"))
		if err == nil {
			_, err = io.ReadAll(res.Body)
			res.Body.Close()
		}
		var reset http2.StreamError
		if err == nil || errors.As(err, &reset) && reset.Code == http2.ErrCodeNo {
			t.Errorf("%s: it ended well, with %v", name, err)
		}
		e.stop()
		if access := e.access.String(); !strings.Contains(access, "status=200") || !strings.Contains(access, "aborted=true") {
			t.Errorf("%s: access log %q", name, access)
		}
	}
}

// A client that is answered before its upload is complete gets the whole answer. The upstream's
// connection holds half a body, and is not used again.
func TestAnEarlyAnswerArrivesWholeOverHTTP2(t *testing.T) {
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			s.answers("HTTP/1.1 413 Content Too Large\r\nContent-Length: 20\r\n\r\n%s", strings.Repeat("x", 20))
		}
	})
	e := open(t, nil, o.use)
	c := newStreams(e)
	for id := uint32(1); id < 7; id += 2 {
		c.headers(id, false, "POST", "/v1/wp/x")
		if err := c.framer.WriteData(id, false, []byte("a part of a body")); err != nil {
			t.Fatal(err)
		}
		if got := c.answer(id); got.status != "413" || got.body != strings.Repeat("x", 20) {
			t.Errorf("%+v", got)
		}
	}
	if n := o.conns.Load(); n != 3 {
		t.Errorf("%d connections for three requests", n)
	}
}

// A client may end a stream without a body apart from its head. The upstream gets a request without
// a body, on a kept connection.
func TestAnEndThatComesAloneIsNoBody(t *testing.T) {
	heads := make(chan *http.Request, 3)
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			heads <- r
			_, _ = io.Copy(io.Discard, r.Body)
			s.answers(ok200)
		}
	})
	e := open(t, nil, o.use)
	c := newStreams(e)
	for id := uint32(1); id < 7; id += 2 {
		c.headers(id, false, "DELETE", "/v1/wp/x")
		if err := c.framer.WriteData(id, true, nil); err != nil {
			t.Fatal(err)
		}
		if got := c.answer(id); got.status != "200" || got.body != "ok" {
			t.Errorf("%+v", got)
		}
		if r := <-heads; r.ContentLength != 0 || r.TransferEncoding != nil || r.Close {
			t.Errorf("length %d, codings %q, close %v", r.ContentLength, r.TransferEncoding, r.Close)
		}
		eventually(t, "the connection is put back", func() bool { return e.gateway.Upstreams()[0].Busy == 0 })
	}
	if n := o.conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// An answer whose end has come with its body is passed on in two frames: without one that has
// nothing but the end.
func TestAWholeAnswerIsTwoFrames(t *testing.T) {
	for name, answer := range map[string]string{"length": ok200, "chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"} {
		o := answering(t, answer)
		e := open(t, nil, o.use)
		c := newStreams(e)
		c.headers(1, true, "GET", "/v1/wp/x")
		if got := c.answer(1); got.frames != 2 || got.body != "ok" {
			t.Errorf("%s: %+v, want two frames", name, got)
		}
	}
}

// Streams are a client's connection of HTTP/2 that shows each frame.
type streams struct {
	t      testing.TB
	framer *http2.Framer
	enc    *hpack.Encoder
	block  bytes.Buffer
	dec    *hpack.Decoder
}

func newStreams(e *edge) *streams {
	e.t.Helper()
	c := e.dial()
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		e.t.Fatal(err)
	}
	s := &streams{t: e.t, framer: http2.NewFramer(c, c), dec: hpack.NewDecoder(4096, nil)}
	s.enc = hpack.NewEncoder(&s.block)
	if err := s.framer.WriteSettings(); err != nil {
		e.t.Fatal(err)
	}
	return s
}

// headers begins a stream, and ends it too if ends. more are names and values of fields.
func (s *streams) headers(id uint32, ends bool, method, path string, more ...string) {
	s.t.Helper()
	s.block.Reset()
	for _, f := range [][2]string{{":method", method}, {":scheme", "http"}, {":authority", "weir.test"}, {":path", path}} {
		_ = s.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	for i := 0; i < len(more); i += 2 {
		_ = s.enc.WriteField(hpack.HeaderField{Name: more[i], Value: more[i+1]})
	}
	err := s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: s.block.Bytes(), EndStream: ends, EndHeaders: true})
	if err != nil {
		s.t.Fatal(err)
	}
}

// A framed is an answer, and of how many frames it was.
type framed struct {
	status, body string
	frames       int
}

// answer reads the answer of a stream.
func (s *streams) answer(id uint32) (got framed) {
	s.t.Helper()
	for {
		frame, err := s.framer.ReadFrame()
		if err != nil {
			s.t.Fatalf("stream %d, after %+v: %v", id, got, err)
		}
		if frame.Header().StreamID != id {
			continue
		}
		switch frame := frame.(type) {
		case *http2.HeadersFrame:
			fields, err := s.dec.DecodeFull(frame.HeaderBlockFragment())
			if err != nil {
				s.t.Fatal(err)
			}
			got.status = fields[0].Value
		case *http2.DataFrame:
			got.body += string(frame.Data())
		case *http2.RSTStreamFrame:
			s.t.Fatalf("stream %d, after %+v: reset with %v", id, got, frame.ErrCode)
		}
		got.frames++
		if frame.Header().Flags.Has(http2.FlagDataEndStream) && frame.Header().Type <= http2.FrameHeaders {
			return got
		}
	}
}

// A body of known length is whole with its last byte. If the upstream answers before the end of the
// stream has come, the answer is no early one, and the connection is kept.
func TestALastByteEndsABody(t *testing.T) {
	const size = 20_000 // more than is awaited whole
	o := answering(t, ok200)
	e := open(t, nil, o.use)
	c := newStreams(e)
	for id := uint32(1); id < 7; id += 2 {
		c.headers(id, false, "POST", "/v1/wp/x", "content-length", fmt.Sprint(size))
		for range 2 {
			if err := c.framer.WriteData(id, false, make([]byte, size/2)); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.answer(id); got.status != "200" || got.body != "ok" {
			t.Errorf("%+v", got)
		}
		eventually(t, "the connection is put back", func() bool { return e.gateway.Upstreams()[0].Kept == 1 })
	}
	if n := o.conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}
