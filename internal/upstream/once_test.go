package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A brittleConn discards writes once it is broken, like a kept connection whose end
// was not noticed.
type brittleConn struct {
	net.Conn
	broken atomic.Bool
}

func (c *brittleConn) Write(p []byte) (int, error) {
	if !c.broken.Load() {
		return c.Conn.Write(p)
	}
	return 0, errors.New("broken")
}

func TestARequestIsRetriedOnlyIfNoByteWasSent(t *testing.T) {
	for name, test := range map[string]struct {
		method, field string
		// If true, the request arrives and the connection ends; otherwise no byte
		// is sent.
		arrives bool
		counted bool // base's connections are counted
		again   bool // the request is sent on another connection
	}{
		"GET, heard":                 {"GET", "", true, true, false},
		"HEAD, heard":                {"HEAD", "", true, true, false},
		"OPTIONS, heard":             {"OPTIONS", "", true, true, false},
		"TRACE, heard":               {"TRACE", "", true, true, false},
		"DELETE, heard":              {"DELETE", "", true, true, false},
		"POST, heard":                {"POST", "", true, true, false},
		"GET with a key, heard":      {"GET", "Idempotency-Key", true, true, false},
		"DELETE with a key, heard":   {"DELETE", "Idempotency-Key", true, true, false},
		"POST with a key, heard":     {"POST", "Idempotency-Key", true, true, false},
		"POST with another, heard":   {"POST", "X-Idempotency-Key", true, true, false},
		"GET, not gone out":          {"GET", "", false, true, true},
		"HEAD, not gone out":         {"HEAD", "", false, true, true},
		"POST, not gone out":         {"POST", "", false, true, true},
		"POST with a key, not out":   {"POST", "Idempotency-Key", false, true, true},
		"GET, not known to arrive":   {"GET", "", false, false, false},
		"GET, arrives, not known to": {"GET", "", true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			var key atomic.Value
			a := serving(t, func(w http.ResponseWriter, r *http.Request) {
				if n := asked.Add(1); n > 1 && test.arrives {
					c, _, _ := w.(http.Hijacker).Hijack()
					c.Close()
				}
				key.Store(r.Header.Get("Idempotency-Key") + r.Header.Get("X-Idempotency-Key"))
				if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
					t.Errorf("a body of %d, in %v", r.ContentLength, r.TransferEncoding)
				}
			})
			var mu sync.Mutex
			var dialled []*brittleConn
			b := &http.Transport{ResponseHeaderTimeout: 5 * time.Second, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, network, address)
				if err != nil {
					return nil, err
				}
				brittle := &brittleConn{Conn: c}
				mu.Lock()
				dialled = append(dialled, brittle)
				mu.Unlock()
				if test.counted {
					return Count(brittle, c), nil
				}
				return brittle, nil
			}}
			t.Cleanup(b.CloseIdleConnections)
			p := open(t, options(a))
			through := p.Transport(b)
			send := func() error {
				r, err := http.NewRequestWithContext(context.Background(), test.method, "http://example.com/", nil)
				if err != nil {
					t.Fatal(err)
				}
				if test.field != "" {
					r.Header.Set(test.field, "1")
				}
				res, err := through.RoundTrip(r)
				if err != nil {
					return err
				}
				_, _ = io.Copy(io.Discard, res.Body)
				if test.field != "" && r.Header.Get(test.field) != "1" {
					t.Errorf("the caller's header was changed: %v", r.Header)
				}
				return res.Body.Close()
			}
			if err := send(); err != nil {
				t.Fatal(err)
			}
			if test.field != "" && key.Load() != "1" {
				t.Errorf("%s arrived as %q", test.field, key.Load())
			}
			mu.Lock()
			dialled[0].broken.Store(!test.arrives)
			mu.Unlock()
			err, want := send(), int64(1)
			if test.again || test.arrives {
				want = 2
			}
			if (err == nil) != test.again || asked.Load() != want {
				t.Errorf("%v, the upstream was asked %d times: want %d", err, asked.Load(), want)
			}
		})
	}
}

// counted returns a CountedConn and the other end of its connection. Both are
// closed with the test.
func counted(t *testing.T) (c *CountedConn, far net.Conn) {
	t.Helper()
	l := listen(t, nil)
	socket, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	far = <-l.accepted
	t.Cleanup(func() { _ = far.Close() })
	return Count(socket, socket), far
}

// net/http notices the end of a kept connection a moment late.
func TestAKeptConnectionOfNetHTTPIsCheckedBeforeAWrite(t *testing.T) {
	for name, done := range map[string]func(net.Conn) error{
		"closed":  func(c net.Conn) error { return c.Close() },
		"unasked": func(c net.Conn) error { _, err := c.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			c, far := counted(t)
			var first, next link
			first.got(c, false)
			first.judged()
			next.got(c, true)
			if n, err := c.Write([]byte("request")); n != 7 || err != nil || !next.wrote() {
				t.Fatalf("%d bytes, %v, wrote %v: want all of it on an unchanged connection", n, err, next.wrote())
			}
			if err := done(far); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(5 * time.Second); !c.stale.Load(); c.try() {
				if time.Now().After(deadline) {
					t.Fatal("the other side's action does not arrive")
				}
			}
			next.got(c, true)
			if n, err := c.Write([]byte("request")); n != 0 || !errors.Is(err, ErrStale) || next.wrote() {
				t.Errorf("%d bytes, %v, wrote %v: want ErrStale and none", n, err, next.wrote())
			}
		})
	}
}

// net/http puts the connection of an answer without a body back before it returns
// the answer. The next exchange waits until the answer was checked, and uses
// another connection if it declared a body.
func TestARequestWaitsForTheCheckOfTheLastAnswer(t *testing.T) {
	for length, spent := range map[string]bool{"5": true, "0": false, "": false} {
		c, _ := counted(t)
		var first, next link
		first.got(c, false)
		taken := make(chan error)
		go func() {
			next.got(c, true)
			_, err := c.Write([]byte("request"))
			taken <- err
		}()
		answer := &http.Response{StatusCode: http.StatusNotModified, Header: http.Header{}}
		if length != "" {
			answer.Header.Set("Content-Length", length)
		}
		select {
		case err := <-taken:
			t.Fatalf("length %q: a request was sent before the last answer was checked: %v", length, err)
		default:
		}
		first.judge(answer)
		first.judged()
		if err := <-taken; errors.Is(err, ErrStale) != spent {
			t.Errorf("length %q: the next request meets %v", length, err)
		}
	}
}
