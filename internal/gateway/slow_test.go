package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// A slowLink forwards at most per bytes every 10 ms, in one of the directions.
type slowLink struct {
	net.Conn
	per  int
	tick *time.Ticker
}

func newSlowLink(t *testing.T, c net.Conn, per int) *slowLink {
	tick := time.NewTicker(10 * time.Millisecond)
	t.Cleanup(tick.Stop)
	if socket, ok := c.(*net.TCPConn); ok {
		_ = socket.SetReadBuffer(16 << 10)
	}
	return &slowLink{c, per, tick}
}

func (c *slowLink) Read(p []byte) (int, error) {
	<-c.tick.C
	return c.Conn.Read(p[:min(len(p), c.per)])
}

func (c *slowLink) Write(p []byte) (n int, err error) {
	for err == nil && n < len(p) {
		<-c.tick.C
		var m int
		m, err = c.Conn.Write(p[n:min(len(p), n+c.per)])
		n += m
	}
	return n, err
}

// overTLS enables TLS, and makes a client's config trust it.
func overTLS(t *testing.T, o *Options, config *tls.Config) {
	config.ServerName, config.RootCAs = "127.0.0.1", secured(t, o)
}

// sink answers a POST with the length of its body, and other requests with size
// bytes.
func sink(size int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Content-Length", fmt.Sprint(size))
			_, _ = io.CopyN(w, zeros{}, size)
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			bodyFailed(w, err)
			return
		}
		fmt.Fprint(w, n)
	}
}

// Streams of one HTTP/2 connection share its link. Each may be below the minimum
// rate if the connection as a whole is above it.
func TestStreamsOfOneConnectionShareTheLeastRate(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	const streams, size = 10, 48 << 10
	for _, post := range []bool{true, false} {
		e := open(t, sink(size), func(o *Options) {
			o.Limits.Rate, o.Limits.Grace, o.Limits.Take, o.Limits.Stall = 60_000, 500*time.Millisecond, 500*time.Millisecond, time.Minute
		})
		client := h2c(t)
		client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return newSlowLink(t, c, 2000), nil
		}
		results := make(chan error, streams)
		for range streams {
			go func() {
				var res *http.Response
				var err error
				if post {
					res, err = client.Post(e.url("/v1/wp/x"), "text/plain", bytes.NewReader(make([]byte, size)))
				} else {
					res, err = client.Get(e.url("/v1/wp/x"))
				}
				if err == nil {
					_, err = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
					if res.StatusCode != http.StatusOK {
						err = errors.New(res.Status)
					}
				}
				results <- err
			}()
		}
		for range streams {
			if err := within(t, patience, "a stream ends", results); err != nil {
				t.Errorf("POST %v: %v", post, err)
			}
		}
	}
}

// If a backend does not read, the window of the whole connection is exhausted. The
// connection's other uploads are not blamed.
func TestAWindowHeldByABackendDoesNotEndOtherUploads(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	const grace, size = 8 * time.Second, 3 << 20 // a busy machine stands still for several
	a, b := make(chan struct{}), make(chan struct{})
	e := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/wp/a" {
			close(a)
			<-b // B is about to be read, and waits for the window
			pause := time.NewTimer(2 * grace)
			defer pause.Stop()
			<-pause.C
		} else {
			close(b)
		}
		sink(0)(w, r)
	}), func(o *Options) { o.Limits.Rate, o.Limits.Grace, o.Limits.Body = 10_000, grace, -1 })
	client := h2c(t)
	results := make(chan string, 2)
	post := func(path string, body io.Reader) {
		res, err := client.Post(e.url(path), "text/plain", body)
		if err != nil {
			results <- err.Error()
			return
		}
		results <- text(t, res)
	}
	go post("/v1/wp/a", &io.LimitedReader{R: zeros{}, N: size})
	within(t, patience, "A's backend is reached", a)
	go post("/v1/wp/b", &io.LimitedReader{R: zeros{}, N: size})
	for range 2 {
		if got := within(t, patience, "an upload ends", results); got != fmt.Sprint(size) {
			t.Errorf("an upload: %q", got)
		}
	}
}

// The timeout of an upload does not apply to answers.
func TestTheTimeoutOfAnUploadDoesNotApplyToAnswers(t *testing.T) {
	const size, upload = 16 << 20, 100 * time.Millisecond
	e := open(t, sink(size), func(o *Options) { o.Limits.Upload = upload })
	res, err := h2c(t).Get(e.url("/v1/wp/x"))
	if err != nil {
		t.Fatal(err)
	}
	pause := time.NewTimer(4 * upload) // until the window is exhausted, and the write waits
	defer pause.Stop()
	<-pause.C
	if n, err := io.Copy(io.Discard, res.Body); n != size || err != nil {
		t.Errorf("%d of %d bytes: %v", n, size, err)
	}
}

// An upload above the minimum rate is not ended because of large TLS records, each
// of which takes longer than the grace.
func TestARecordMayTakeLongerThanTheGrace(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	const size = 40 << 10
	for name, change := range map[string]func(*Options){"an upstream": behind(t, sink(0)), "a backend": func(*Options) {}} {
		config := &tls.Config{DynamicRecordSizingDisabled: true}
		e := open(t, sink(0), func(o *Options) {
			change(o)
			overTLS(t, o, config)
			// A record takes 0.55 s. A link on a busy machine is slower than its 30,000.
			o.Limits.Rate, o.Limits.Grace = 3000, 400*time.Millisecond
		})
		c := tls.Client(newSlowLink(t, e.dial(), 300), config)
		fmt.Fprintf(c, "POST /v1/wp/x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", size)
		go func() { _, _ = c.Write(make([]byte, size)) }()
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := text(t, res); got != fmt.Sprint(size) {
			t.Errorf("%s: %d %q", name, res.StatusCode, got)
		}
	}
}

// A part of a TLS record after the handshake is the beginning of a head, with the
// head's timeout.
func TestAPartOfARecordHasTheTimeOfAHead(t *testing.T) {
	for name, change := range map[string]func(*Options){"an upstream": behind(t, silent), "a backend": func(*Options) {}} {
		config := new(tls.Config)
		e := open(t, silent, func(o *Options) {
			change(o)
			overTLS(t, o, config)
			o.Limits.Header, o.Limits.Idle = time.Second, time.Hour
		})
		raw := e.dial()
		c := tls.Client(raw, config)
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		_, _ = raw.Write([]byte{23, 3, 3})
		if _, err := io.Copy(io.Discard, raw); pace.IsTimeout(err) {
			t.Errorf("%s: three bytes of a record hold the connection", name)
		}
	}
}
