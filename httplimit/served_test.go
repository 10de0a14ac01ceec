package httplimit_test

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/weirlimit/weir/httplimit"
)

// A client that has a whole response finds its slot free, also if the handler goes on. The handler
// can still tell what the request has cost.
func TestAWholeResponseHoldsNoSlot(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	long := strings.Repeat("x", 1_000_000)
	if err := os.WriteFile(name, []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
	sized := func(w http.ResponseWriter, n int) { w.Header().Set("Content-Length", strconv.Itoa(n)) }
	for _, test := range []struct {
		name, method string
		handler      http.HandlerFunc
		body         string
	}{
		{"Write", "GET", func(w http.ResponseWriter, _ *http.Request) {
			sized(w, 4)
			_, _ = w.Write([]byte("an "))
			_, _ = w.Write([]byte("x"))
		}, "an x"},
		{"WriteString", "GET", func(w http.ResponseWriter, _ *http.Request) {
			sized(w, len(long))
			_, _ = io.WriteString(w, long)
		}, long},
		{"ReadFrom", "GET", func(w http.ResponseWriter, _ *http.Request) {
			sized(w, len(long))
			_, _ = io.Copy(w, strings.NewReader(long))
		}, long},
		{"a file", "GET", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, name) }, long},
		{"a file's head", "HEAD", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, name) }, ""},
		{"204", "GET", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, ""},
		{"304", "GET", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }, ""},
		{"an empty body", "GET", func(w http.ResponseWriter, _ *http.Request) { sized(w, 0) }, ""},
	} {
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
			t.Run(test.name+" over "+protocol, func(t *testing.T) {
				leave := make(chan struct{})
				e := setUp(t, func(w http.ResponseWriter, r *http.Request) {
					test.handler(w, r)
					w.(http.Flusher).Flush()
					<-leave
					if err := httplimit.Settle(w, 3); err != nil {
						t.Error(err)
					}
				}, oneInFlight)
				ended, s := e.ended(), e.server
				if protocol == "HTTP/2.0" {
					s = e.startHTTP2(e.server.Config.Handler)
				}
				r, _ := http.NewRequest(test.method, s.URL+"/v1/chat", nil)
				res, err := s.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				body := make([]byte, len(test.body))
				if n, err := io.ReadFull(res.Body, body); err != nil || string(body) != test.body {
					t.Errorf("%d bytes arrive, %v, want %d", n, err, len(body))
				}
				e.wantHeld(0)
				e.wantSpent(10)
				close(leave)
				<-ended
				e.wantHeld(0)
				e.wantSpent(3)
				_ = res.Body.Close()
			})
		}
	}
}

// A response whose end is not known holds its slot until its handler returns, as does one that ends
// before its declared length.
func TestAResponseThatGoesOnHoldsItsSlot(t *testing.T) {
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
	}{
		{"nothing", func(http.ResponseWriter, *http.Request) {}},
		{"the head", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }},
		{"a part", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			_, _ = io.WriteString(w, "ok")
			w.(http.Flusher).Flush()
		}},
		{"103", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) }},
		{"events", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, ":\n\n")
			w.(http.Flusher).Flush()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			arrived, leave := make(chan struct{}), make(chan struct{})
			e := setUp(t, func(w http.ResponseWriter, r *http.Request) {
				test.handler(w, r)
				close(arrived)
				<-leave
			}, oneInFlight)
			ended := e.ended()
			c, _ := e.dial()
			_, _ = io.WriteString(c, "POST /v1/chat HTTP/1.1\r\nHost: weir.test\r\n\r\n")
			<-arrived
			e.wantHeld(1)
			close(leave)
			<-ended
			e.wantHeld(0)
		})
	}
}

// A handler's fields do not end the request of a connection that it takes over.
func TestATakenConnectionWithALengthHoldsItsSlot(t *testing.T) {
	hijacked := make(chan io.Closer, 1)
	e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "0")
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = w.Write([]byte("x")) // net/http refuses it
		_, _ = io.WriteString(c, "hello\n")
		hijacked <- c
	}, oneInFlight)
	ended := e.ended()
	c, r := e.dial()
	_, _ = io.WriteString(c, "GET /v1/socket HTTP/1.1\r\nHost: weir.test\r\n\r\n")
	<-ended
	if line, err := bufio.NewReader(r).ReadString('\n'); line != "hello\n" {
		t.Errorf("the client reads %q, %v", line, err)
	}
	e.wantHeld(1)
	_ = (<-hijacked).Close()
	e.wantHeld(0)
}

// A fileWriter counts the bytes that it is given in a form in which the server uses sendfile.
type fileWriter struct {
	http.ResponseWriter
	sent int64
}

func (w *fileWriter) ReadFrom(src io.Reader) (int64, error) {
	n, err := w.ResponseWriter.(io.ReaderFrom).ReadFrom(src)
	if part, ok := src.(*io.LimitedReader); ok {
		if _, ok := part.R.(*os.File); ok {
			w.sent += n
		}
	}
	return n, err
}

func TestAFileUnderALimitInFlightIsSentByTheKernel(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, make([]byte, 1_000_000), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
	}{
		{"with a limit", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, name) }},
		{"whole", func(w http.ResponseWriter, _ *http.Request) {
			f, err := os.Open(name)
			if err != nil {
				panic(err)
			}
			defer func() { _ = f.Close() }()
			w.Header().Set("Content-Length", "1000000")
			_, _ = w.(io.ReaderFrom).ReadFrom(f)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := setUp(t, test.handler, oneInFlight)
			limited, w := e.server.Config.Handler, new(fileWriter)
			e.server.Config.Handler = http.HandlerFunc(func(under http.ResponseWriter, r *http.Request) {
				w.ResponseWriter = under
				limited.ServeHTTP(w, r)
			})
			res, err := e.server.Client().Get(e.server.URL + "/v1/chat")
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			e.wantHeld(0)
			if n != 1_000_000 || err != nil || w.sent < 990_000 {
				t.Errorf("%d bytes arrive, %v, and %d by the kernel", n, err, w.sent)
			}
		})
	}
}
