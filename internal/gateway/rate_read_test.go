package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// flooding sends an endless answer, and reports why it ended.
func flooding(ended chan<- error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.Copy(w, zeros{})
		ended <- err
	}
}

// If a client reads an answer at a byte at a time, its connection is closed, so it
// does not block the backend.
func TestATricklingReaderIsClosed(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	ended := make(chan error, 1)
	for name, change := range map[string]func(*Options){"an upstream": behind(t, flooding(ended)), "a backend": func(*Options) {}} {
		e := open(t, flooding(ended), func(o *Options) {
			change(o)
			o.Limits.Rate, o.Limits.Grace, o.Limits.Stall = 1<<20, 400*time.Millisecond, 3*time.Second
			o.Limits.Take = 3 * time.Second
		})
		c := e.dial()
		_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
		fmt.Fprint(c, "GET /v1/wp/flood HTTP/1.1\r\nHost: h\r\n\r\n")
		tick := time.NewTicker(time.Millisecond)
		for let := false; !let; {
			select {
			case err := <-ended:
				if let = true; err == nil {
					t.Errorf("%s: an endless answer ended well", name)
				}
			case <-tick.C:
				if _, err := c.Read(make([]byte, 1)); pace.IsTimeout(err) {
					t.Fatalf("%s: the answer goes on", name)
				}
			}
		}
		tick.Stop()

		// The client's window is four MiB, and is never widened.
		res, err := h2c(t).Get(e.url("/v1/wp/flood"))
		if err != nil {
			t.Fatalf("%s, HTTP/2: %v", name, err)
		}
		if err := within(t, patience, "the stream is reset", ended); err == nil {
			t.Errorf("%s, HTTP/2: an endless answer ended well", name)
		}
		_ = res.Body.Close()
		eventually(t, "nothing is in flight", func() bool { return e.gateway.InFlight() == 0 })
	}
}

// A client that is slow, but above the minimum rate, gets the whole answer, even if
// single writes wait for longer than the grace. Buffers in between hide the
// progress.
func TestASlowSteadyReaderGetsTheWholeAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	const size, piece = 6 << 20, 64 << 10
	send := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		if n, err := io.CopyN(w, zeros{}, size); err != nil {
			t.Errorf("it ends after %d bytes: %v", n, err)
		}
	}
	for name, change := range map[string]func(*Options){"an upstream": behind(t, send), "a backend": func(*Options) {}} {
		e := open(t, http.HandlerFunc(send), func(o *Options) {
			change(o)
			o.Limits.Rate, o.Limits.Grace, o.Limits.Take = 100<<10, 800*time.Millisecond, 800*time.Millisecond
		})
		c := e.caller()
		c.request("GET /v1/wp/long")
		c.head()
		tick := time.NewTicker(40 * time.Millisecond)
		var got int64
		for got < size {
			<-tick.C
			n, err := io.CopyN(io.Discard, c, min(piece, size-got))
			if got += n; err != nil {
				t.Fatalf("%s: after %d of %d bytes: %v", name, got, size, err)
			}
		}
		tick.Stop()
	}
}

// If a stream is silent for longer than the grace, it stays open, because the
// client is not the cause.
func TestAStreamMayBeSilentLongerThanTheGrace(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	const grace = 200 * time.Millisecond
	events := func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(2 * grace)
		defer tick.Stop()
		for range 3 {
			<-tick.C
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
		}
	}
	for name, change := range map[string]func(*Options){"an upstream": behind(t, events), "a backend": func(*Options) {}} {
		e := open(t, http.HandlerFunc(events), func(o *Options) {
			change(o)
			o.Limits.Rate, o.Limits.Grace = 1<<20, grace
		})
		for version, client := range map[string]*http.Client{"HTTP/1.1": {Transport: &http.Transport{}}, "HTTP/2": h2c(t)} {
			res, err := client.Get(e.url("/v1/wp/events"))
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(res.Body); string(body) != "xxx" || err != nil && !errors.Is(err, io.EOF) {
				t.Errorf("%s, %s: %q, %v", name, version, body, err)
			}
		}
	}
}
