package pacer_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/pacer"
)

// A source is a body that counts how it is used.
type source struct {
	io.Reader
	closed atomic.Int64
}

func (s *source) Close() error {
	s.closed.Add(1)
	return nil
}

func put(t *testing.T, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequest("PUT", "http://api.example.com/v1/wp/documents", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer wpt_abc_def")
	return r
}

func refuseOnce() *script {
	return &script{replies: []reply{
		{status: 429, header: with(fields("60", "0", "now+30"), "Retry-After", "30")},
		{status: 204, header: fields("60", "59", "now+60")},
	}}
}

func TestABodyIsRepeatedExactly(t *testing.T) {
	text := strings.Repeat("all of it, byte by byte; ", 4000)
	for name, body := range map[string]func() io.Reader{
		"that can be recreated":   func() io.Reader { return strings.NewReader(text) },
		"that can be read once":   func() io.Reader { return &source{Reader: strings.NewReader(text)} },
		"that comes in pieces":    func() io.Reader { return &source{Reader: iotest.OneByteReader(strings.NewReader(text))} },
		"that ends with its data": func() io.Reader { return &source{Reader: iotest.DataErrReader(strings.NewReader(text))} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := refuseOnce()
				in := body()
				r := put(t, in)
				own := r.Body
				response, err := pacer.New(&pacer.Options{Base: s}).RoundTrip(r)
				if err != nil || response.StatusCode != 204 {
					t.Fatalf("answered %v, %v", response, err)
				}
				if len(s.bodies) != 2 || s.bodies[0] != text || s.bodies[1] != text {
					t.Errorf("%d bodies were sent, and not all are the request's", len(s.bodies))
				}
				if from, ok := in.(*source); ok && from.closed.Load() != 1 {
					t.Errorf("the body was closed %d times", from.closed.Load())
				}
				if r.Body != own {
					t.Error("the caller's request was changed")
				}
			})
		})
	}
}

func TestABodyThatCannotBeRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		maxBody int64
		size    int
	}{"longer than the default": {0, 1<<20 + 1}, "longer than MaxBody": {10, 11}, "nothing is kept": {-1, 1}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := refuseOnce()
				in := &source{Reader: strings.NewReader(strings.Repeat("x", c.size))}
				response, err := pacer.New(&pacer.Options{Base: s, MaxBody: c.maxBody}).RoundTrip(put(t, in))
				if err != nil || response.StatusCode != 429 || len(s.at) != 1 || len(s.bodies[0]) != c.size {
					t.Fatalf("answered %v, %v after %d requests, want the 429", response, err, len(s.at))
				}
				if in.closed.Load() != 1 {
					t.Errorf("the body was closed %d times", in.closed.Load())
				}
			})
		})
	}
	bubble(t, func(t *testing.T) { // up to the bound it can be repeated
		s := refuseOnce()
		in := &source{Reader: strings.NewReader(strings.Repeat("x", 10))}
		if response, err := pacer.New(&pacer.Options{Base: s, MaxBody: 10}).RoundTrip(put(t, in)); err != nil || response.StatusCode != 204 {
			t.Errorf("a body of exactly MaxBody: answered %v, %v", response, err)
		}
	})
	bubble(t, func(t *testing.T) { // not if its GetBody fails
		s := refuseOnce()
		broken := errors.New("the file is gone")
		r := put(t, strings.NewReader("x"))
		r.GetBody = func() (io.ReadCloser, error) { return nil, broken }
		if _, err := pacer.New(&pacer.Options{Base: s}).RoundTrip(r); !errors.Is(err, broken) {
			t.Errorf("answered %v, want the error of GetBody", err)
		}
	})
}

// early answers before it has read the body. As in net/http, the transport
// continues to read the body.
type early struct {
	t     *testing.T
	sent  int
	whole string
	first *http.Request
}

func (e *early) RoundTrip(r *http.Request) (*http.Response, error) {
	e.sent++
	h := http.Header{}
	if e.sent == 1 {
		e.first = r
		go func() { // the write loop of a connection
			defer r.Body.Close()
			io.Copy(io.Discard, r.Body)
		}()
		synctest.Wait()
		h.Set("Retry-After", "1")
		return &http.Response{StatusCode: 429, Header: h, Body: http.NoBody}, nil
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body.Close()
	e.whole = string(text)
	return &http.Response{StatusCode: 204, Header: h, Body: http.NoBody}, nil
}

func TestABodyRefusedWhileItIsWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		out, in := io.Pipe()
		go func() {
			in.Write([]byte("one "))
			pass(10 * time.Second) // the refusal and its wait are over by then
			in.Write([]byte("two "))
			in.Write([]byte("three"))
			in.Close()
		}()
		e := &early{t: t}
		response, err := pacer.New(&pacer.Options{Base: e}).RoundTrip(put(t, out))
		if err != nil || response.StatusCode != 204 || e.whole != "one two three" {
			t.Errorf("answered %v, %v; the second time %q was sent", response, err, e.whole)
		}
	})
}

func TestABodyIsClosedIfNothingIsSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		in := &source{Reader: strings.NewReader("x")}
		s := &script{replies: []reply{{status: 200, header: fields("60", "0", "now+60")}}}
		p := pacer.New(&pacer.Options{Base: s, MaxWait: pacer.NoWait})
		if _, err := p.RoundTrip(get(t)); err != nil {
			t.Fatal(err)
		}
		_, err := p.RoundTrip(put(t, in))
		asWait(t, err)
		if in.closed.Load() != 1 {
			t.Errorf("the body was closed %d times", in.closed.Load())
		}
	})
}

// HTTP/2 closes the body of a request that its server resets, and waits until the
// body is no longer read.
func TestAResetEndsACallWithAnUnfinishedBody(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.ReadFull(r.Body, make([]byte, 5))
		panic(http.ErrAbortHandler)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	p := pacer.New(&pacer.Options{Base: server.Client().Transport})
	out, in := io.Pipe()
	defer in.Close()
	go in.Write([]byte("hello")) // and then nothing
	r, err := http.NewRequest("POST", server.URL+"/v1/wp/documents", out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.RoundTrip(r); err == nil { // the test's own timeout ends a call that hangs
		t.Error("a request that the server reset was answered")
	}
	p.CloseIdleConnections()
}
