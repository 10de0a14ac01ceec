package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Slowloris: a header that does not arrive.
func TestASlowHeaderIsCutOff(t *testing.T) {
	e := open(t, new(recorder), func(o *Options) { o.Limits.Header = 50 * time.Millisecond })
	for _, start := range []string{"G", "GET /v1/wp/status HTTP/1.1\r\nHost: h\r\nX-Slow"} {
		c := e.dial()
		_, _ = io.WriteString(c, start)
		if _, err := io.ReadAll(c); err != nil {
			t.Errorf("%q: %v, want the end of the connection", start, err)
		}
	}
}

func TestAnIdleConnectionIsClosed(t *testing.T) {
	e := open(t, new(recorder), func(o *Options) { o.Limits.Idle = 50 * time.Millisecond })
	c := e.dial()
	fmt.Fprint(c, "GET /v1/wp/status HTTP/1.1\r\nHost: h\r\n\r\n")
	if b, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 200 ") {
		t.Errorf("%q, %v", b, err)
	}
}

// A stalled body, read by the sample backend, by an upstream, or not at all.
func TestABodyThatStallsIsCutOff(t *testing.T) {
	read := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			bodyFailed(w, err)
		}
	})
	for name, change := range map[string]func(*Options){
		"backend":  func(*Options) {},
		"upstream": behind(t, read),
	} {
		e := open(t, read, func(o *Options) { change(o); o.Limits.Stall = 50 * time.Millisecond })
		for _, framing := range []string{"Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", "Transfer-Encoding: chunked\r\n\r\n4"} {
			c := e.dial()
			fmt.Fprint(c, "POST /api/v1/widget/leads HTTP/1.1\r\nHost: h\r\n"+framing)
			b, err := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 408 ") || !strings.Contains(string(b), "X-RateLimit-Limit: "+leads) {
				t.Errorf("%s, %q: %q, %v", name, framing, b, err)
			}
		}
		stalled, half := io.Pipe()
		go func() { _, _ = half.Write([]byte("half")) }()
		res, err := h2c(t).Post(e.url("/api/v1/widget/leads"), "text/plain", stalled)
		if err != nil {
			t.Fatalf("%s, HTTP/2: %v", name, err)
		}
		want(t, res, http.StatusRequestTimeout, "request_timeout", leads)
		half.Close()
	}
	e := open(t, new(recorder), func(o *Options) { o.Limits.Stall = 50 * time.Millisecond })
	c := e.dial()
	fmt.Fprint(c, "POST /api/v1/widget/leads HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf")
	if b, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 200 ") {
		t.Errorf("without a reader: %q, %v", b, err)
	}
}

// A slow transfer that makes progress may last longer than the stall timeout, in
// both directions.
func TestASlowBodyThatMakesProgressContinues(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	e := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		b := make([]byte, 1)
		for {
			n, err := r.Body.Read(b)
			if n > 0 {
				_, _ = w.Write(b)
				_ = http.NewResponseController(w).Flush()
			}
			if err != nil {
				if err != io.EOF {
					panic(http.ErrAbortHandler)
				}
				return
			}
		}
	}), func(o *Options) { o.Limits.Stall = time.Second })
	for name, client := range map[string]*http.Client{"HTTP/1.1": {Transport: &http.Transport{}}, "HTTP/2": h2c(t)} {
		pr, pw := io.Pipe()
		res, err := make(chan *http.Response, 1), make(chan error, 1)
		go func() {
			r, e2 := client.Post(e.url("/v1/wp/documents"), "text/plain", pr)
			res <- r
			err <- e2
		}()
		tick := time.NewTicker(75 * time.Millisecond)
		for range 16 {
			if _, err := pw.Write([]byte("x")); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			<-tick.C
		}
		tick.Stop()
		pw.Close()
		r, e2 := <-res, <-err
		if e2 != nil {
			t.Fatalf("%s: %v", name, e2)
		}
		if body := text(t, r); body != "xxxxxxxxxxxxxxxx" {
			t.Errorf("%s: %q", name, body)
		}
	}
}

// A stream may be silent for longer than the stall timeout.
func TestASilentStreamContinues(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	const stall = 300 * time.Millisecond
	e := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_, _ = io.ReadAll(r.Body)
		_ = rc.Flush()
		timer := time.NewTimer(3 * stall)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
		_, _ = io.WriteString(w, "event\n")
		_ = rc.Flush()
	}), func(o *Options) { o.Limits.Stall = stall })
	for name, client := range map[string]*http.Client{"HTTP/1.1": {Transport: &http.Transport{}}, "HTTP/2": h2c(t)} {
		res, err := client.Post(e.url("/v1/wp/events"), "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		if body := text(t, res); body != "event\n" {
			t.Errorf("%s: %q", name, body)
		}
	}
}

// If a peer stops reading, its HTTP/1.1 connection is closed. Over HTTP/2, one
// starved stream is reset even if its connection is otherwise alive.
func TestAStalledReaderIsClosed(t *testing.T) {
	ended := make(chan error, 1)
	e := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/wp/flood" {
			return
		}
		_, err := io.Copy(w, zeros{})
		ended <- err
	}), func(o *Options) { o.Limits.Stall = 100 * time.Millisecond })
	c := e.dial()
	fmt.Fprint(c, "GET /v1/wp/flood HTTP/1.1\r\nHost: h\r\n\r\n")
	if err := <-ended; err == nil {
		t.Error("an endless answer ended well")
	}

	c = e.dial()
	_, _ = io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	_ = f.WriteSettings()
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "h"}, {":path", "/v1/wp/flood"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true})
	// The window of 65,535 bytes is never widened, but the connection is read.
	reset := false
	for !reset {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := frame.(*http2.RSTStreamFrame); ok {
			reset = r.StreamID == 1
		}
	}
	if err := <-ended; err == nil {
		t.Error("an endless answer ended well")
	}
}

// A pipelining client that never reads is closed, too. Its answers are small, and
// each handler has already returned.
func TestAPipeliningClientThatNeverReadsIsClosed(t *testing.T) {
	e := open(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.CopyN(w, zeros{}, 3<<10) }),
		func(o *Options) { o.Limits.Stall = 100 * time.Millisecond })
	c := e.dial()
	request := strings.Repeat("GET /v1/wp/status HTTP/1.1\r\nHost: h\r\n\r\n", 100)
	for {
		if _, err := io.WriteString(c, request); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection is still open")
			}
			return
		}
	}
}
