package httplimit_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/httplimit"
)

// dial opens a connection to the edge.
func (e *edge) dial() (net.Conn, *bufio.Reader) {
	e.Helper()
	c, err := net.Dial("tcp", e.server.Listener.Addr().String())
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = c.Close() })
	return c, bufio.NewReader(c)
}

// A stream is not buffered: each event reaches the client before the next is written.
func TestServerSentEventsArriveOneByOne(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			next := make(chan struct{})
			e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for i := range 3 {
					_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
					w.(http.Flusher).Flush()
					<-next
				}
			})
			s := e.server
			if protocol == "HTTP/2.0" {
				s = e.startHTTP2(e.server.Config.Handler)
			}
			res, err := s.Client().Post(s.URL+"/api/v1/widget/typing", "", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			if res.Proto != protocol || res.Header.Get("X-RateLimit-Remaining") != "59" || res.Header.Get("Date") != startDate {
				t.Errorf("%s %v", res.Proto, res.Header)
			}
			lines := bufio.NewReader(res.Body)
			for i := range 3 {
				line, err := lines.ReadString('\n')
				if err != nil || line != fmt.Sprintf("data: %d\n", i) {
					t.Fatalf("event %d is %q, %v", i, line, err)
				}
				_, _ = lines.ReadString('\n')
				next <- struct{}{}
			}
		})
	}
}

// HTTP/2 responses have each field once, in lower case as HTTP/2 requires.
func TestHTTP2CarriesTheFieldsOnce(t *testing.T) {
	e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "7")
		if _, found := w.(http.Pusher); !found {
			t.Error("the writer of an HTTP/2 request is no http.Pusher")
		}
		if _, found := w.(http.Hijacker); found {
			t.Error("the writer of an HTTP/2 request is an http.Hijacker")
		}
	})
	s := e.startHTTP2(e.server.Config.Handler)
	for i := range 3 {
		res, err := s.Client().Post(s.URL+"/api/v1/widget/satisfaction", "", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		for name, want := range map[string]string{"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": fmt.Sprint(max(1-i, 0)), "X-RateLimit-Reset": "1800000060", "Date": startDate} {
			if got := res.Header.Values(name); len(got) != 1 || got[0] != want {
				t.Errorf("request %d: %s is %q, want %s", i, name, got, want)
			}
		}
		if i == 2 && (res.StatusCode != 429 || string(body) != rateLimited(widgetText) || res.Header.Get("Retry-After") != "60") {
			t.Errorf("the refusal is %d %s %v", res.StatusCode, body, res.Header)
		}
	}
}

// Trailers pass, announced or not, except for those that repeat our fields.
func TestTrailersPass(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Trailer", "X-Sum, X-RateLimit-Limit")
				w.Header().Set(http.TrailerPrefix+"X-RateLimit-Reset", "7")
				_, _ = io.WriteString(w, "body")
				w.Header().Set("X-Sum", "announced")
				w.Header().Set("X-RateLimit-Limit", "7")
				w.Header().Set(http.TrailerPrefix+"X-Late", "unannounced")
				w.Header().Set(http.TrailerPrefix+"X-RateLimit-Remaining", "7")
			})
			s := e.server
			if protocol == "HTTP/2.0" {
				s = e.startHTTP2(e.server.Config.Handler)
			}
			res, err := s.Client().Post(s.URL+"/api/v1/widget/typing", "", nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || string(body) != "body" || res.Header.Get("X-RateLimit-Limit") != "60" {
				t.Errorf("the response is %q %v, %v", body, res.Header, err)
			}
			got := res.Trailer
			if got.Get("X-Sum") != "announced" || got.Get("X-Late") != "unannounced" || got.Get("X-RateLimit-Limit")+got.Get("X-RateLimit-Remaining")+got.Get("X-RateLimit-Reset") != "" {
				t.Errorf("the trailers are %v", got)
			}
		})
	}
}

// 103 Early Hints are sent before the final response, without fields that only a
// final response can have. The handler's own Retry-After still counts for the final
// response.
func TestEarlyHintsPass(t *testing.T) {
	e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Link", "</style.css>; rel=preload")
		h.Set("Retry-After", "7")
		h.Set("X-RateLimit-Limit", "7")
		w.WriteHeader(http.StatusEarlyHints)
		h.Del("Link")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	c, r := e.dial()
	_, _ = io.WriteString(c, "POST /api/v1/widget/typing HTTP/1.1\r\nHost: weir.test\r\n\r\n")
	if hints := readHead(t, r); hints != "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n" {
		t.Errorf("the hints are %q", hints)
	}
	e.parse(readHead(t, r)).want(429, 60, 0, 60).wantFields("Retry-After", "7", "Link", "")

	var hinted []string
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		hinted = append(hinted, fmt.Sprint(code, h.Get("Link"), h.Get("X-RateLimit-Limit")))
		return nil
	}})
	s := e.startHTTP2(e.server.Config.Handler)
	req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/api/v1/widget/typing", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if len(hinted) != 1 || hinted[0] != "103</style.css>; rel=preload" || res.Header.Get("X-RateLimit-Limit") != "60" {
		t.Errorf("over HTTP/2 the hints are %q, the answer %v", hinted, res.Header)
	}
}

// An admitted request gets 100 Continue; a refused one does not.
func TestExpectContinueIsAnsweredOnlyWhenAdmitted(t *testing.T) {
	e := setUp(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	const head = "POST /api/v1/widget/satisfaction HTTP/1.1\r\nHost: weir.test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
	for range 2 {
		c, r := e.dial()
		_, _ = io.WriteString(c, head)
		if got := readHead(t, r); !strings.HasPrefix(got, "HTTP/1.1 100 Continue\r\n") {
			t.Fatalf("an admitted request is answered %q", got)
		}
		_, _ = io.WriteString(c, "body")
		if got := readHead(t, r); !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\n") {
			t.Errorf("then %q", got)
		}
	}
	c, r := e.dial()
	_, _ = io.WriteString(c, head)
	e.parse(readHead(t, r)).want(429, 2, 0, 60).wantFields("Connection", "close")
}

// Responses without a body have the fields: 204, 304, and the 200 of a handler that writes nothing.
func TestAnswersWithoutBodiesCarryTheFields(t *testing.T) {
	status := 0
	e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Etag", `"1"`)
		if status != 0 {
			w.WriteHeader(status)
		}
	})
	for i, status2 := range []int{204, 304, 200, 0} {
		status = status2
		e.send("POST /api/v1/widget/typing").want(max(status, 200), 60, 59-int64(i), 60).wantFields("Etag", `"1"`)
	}
}

// The handler of a websocket takes over the connection, and the 101 has our fields.
func TestUpgradedConnectionsPassThroughAProxy(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		line, _ := rw.ReadString('\n')
		_, _ = io.WriteString(c, "echo "+line)
	}))
	defer backend.Close()
	target, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }}
	e := setUp(t, proxy.ServeHTTP)
	c, r := e.dial()
	_, _ = io.WriteString(c, "POST /api/v1/widget/typing HTTP/1.1\r\nHost: weir.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	e.parse(readHead(t, r)).want(101, 60, 59, 60).wantFields("Upgrade", "websocket", "Date", startDate)
	_, _ = io.WriteString(c, "hello\n")
	if line, err := r.ReadString('\n'); err != nil || line != "echo hello\n" {
		t.Errorf("the tunnel answers %q, %v", line, err)
	}
}

// The backend of a reverse proxy cannot duplicate the fields. Its trailers and 1xx
// pass.
func TestBehindAProxyEachFieldOccursOnce(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"} {
			w.Header().Set(name, "7")
		}
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Sum", "1")
	}))
	defer backend.Close()
	target, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }}
	e := setUp(t, proxy.ServeHTTP)
	got := e.raw("POST /api/v1/widget/typing HTTP/1.1\r\nHost: weir.test\r\nConnection: close\r\n\r\n")
	hints, final, _ := strings.Cut(got, "\r\n\r\n")
	if !strings.HasPrefix(hints, "HTTP/1.1 103 ") || strings.Contains(strings.ToLower(hints), "ratelimit") {
		t.Errorf("the hints are %q", hints)
	}
	if a := e.parse(final).want(200, 60, 59, 60).wantFields("Retry-After", "", "Date", startDate); !strings.HasSuffix(a.body, "\r\nX-Sum: 1\r\n\r\n") {
		t.Errorf("the body and trailers are %q", a.body)
	}
}

// io.Copy still finds the server's ReadFrom, which sends a file with sendfile.
func TestFilesAreServedWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large")
	want := strings.Repeat("0123456789abcdef", 1<<16)
	if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
	e := setUp(t, func(w http.ResponseWriter, r *http.Request) {
		if _, found := w.(io.ReaderFrom); !found {
			t.Error("the writer is no io.ReaderFrom")
		}
		http.ServeFile(w, r, path)
	})
	if a := e.send("POST /api/v1/widget/typing").want(200, 60, 59, 60).wantFields("Content-Length", fmt.Sprint(len(want))); a.body != want {
		t.Errorf("%d bytes arrived, want %d", len(a.body), len(want))
	}
	a := e.send("POST /api/v1/widget/typing", "Range: bytes=16-19").want(206, 60, 58, 60)
	if a.body != "0123" {
		t.Errorf("the range is %q", a.body)
	}
}

// If a handler aborts or panics, its connection ends, as it does without the
// limiter.
func TestAPanicEndsTheConnection(t *testing.T) {
	e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic(http.ErrAbortHandler)
	})
	if got := e.raw("POST /api/v1/widget/typing HTTP/1.1\r\nHost: weir.test\r\n\r\n"); got != "" {
		t.Errorf("an aborted handler is answered %q", got)
	}
}

// If an outer handler recovers a panic and answers, its response has the fields.
func TestARecoveredPanicIsAnsweredWithTheFields(t *testing.T) {
	e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "7")
		panic("a bug")
	})
	limited := e.server.Config.Handler
	e.start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				httplimit.WriteError(w, http.StatusInternalServerError, "internal", "sorry")
			}
		}()
		limited.ServeHTTP(w, r)
	}))
	e.send("POST /api/v1/widget/typing").want(500, 60, 59, 60).wantFields("Date", startDate)
}

// Every error has one format, and no fields that describe another body (D21).
func TestEveryErrorHasTheSameFormat(t *testing.T) {
	e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Length", "9000")
		h.Set("Content-Encoding", "gzip")
		h.Set("Etag", `"1"`)
		h.Set("Content-Type", "text/html")
		h.Set("Allow", "GET")
		httplimit.WriteError(w, http.StatusMethodNotAllowed, "method_not_allowed", "no \"<PUT>\" here, \xff\n")
	})
	a := e.send("POST /api/v1/widget/typing").want(405, 60, 59, 60).wantFields("Content-Type", "application/json", "Cache-Control", "no-store",
		"Content-Encoding", "", "Etag", "", "Allow", "GET", "Content-Length", fmt.Sprint(len(`{"error":{"code":"method_not_allowed","message":"no \"<PUT>\" here, \ufffd\n"}}`)))
	if want := `{"error":{"code":"method_not_allowed","message":"no \"<PUT>\" here, \ufffd\n"}}`; a.body != want {
		t.Errorf("the body is %s\nwant %s", a.body, want)
	}
}

// Vary is added to an outer handler's Vary, and does not replace it (D22).
func TestAnOuterVaryIsKept(t *testing.T) {
	e := setUp(t, ok)
	limited := e.server.Config.Handler
	e.start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Origin")
		limited.ServeHTTP(w, r)
	}))
	e.send("POST /api/v1/widget/satisfaction").want(200, 2, 1, 60).wantFields("Vary", "Origin")
	e.send("POST /api/v1/widget/satisfaction").want(200, 2, 0, 60)
	got := e.raw("POST /api/v1/widget/satisfaction HTTP/1.1\r\nHost: weir.test\r\nConnection: close\r\n\r\n")
	if !strings.Contains(got, "\r\nVary: Origin\r\nVary: Accept-Language\r\n") {
		t.Errorf("the refusal is %q", got)
	}
}
