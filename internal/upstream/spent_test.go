package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// countedBase returns a transport whose connections are counted. dialled is called
// for each socket.
func countedBase(t *testing.T, dialled func(*brittleConn)) *http.Transport {
	t.Helper()
	b := base(t)
	b.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		brittle := &brittleConn{Conn: c}
		dialled(brittle)
		return Count(brittle, c), nil
	}
	return b
}

// If a kept connection accepts no bytes, no request and no byte of a body is lost.
func TestABodyIsRetriedCompletelyIfNoByteWasSent(t *testing.T) {
	for name, test := range map[string]struct {
		method string
		length int64
		// The socket accepts no bytes, either. For some bodies that shows only
		// after net/http has read a byte.
		breaks bool
	}{
		"declared":                      {"POST", 5, true},
		"unknown":                       {"POST", -1, true},
		"unknown, and a byte is tried":  {"GET", -1, false},
		"declared, of a method without": {"DELETE", 5, true},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			a := serving(t, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				got, err := io.ReadAll(r.Body)
				fmt.Fprintf(w, "%s %v", got, err)
			})
			var last atomic.Pointer[brittleConn]
			b := countedBase(t, func(c *brittleConn) { last.Store(c) })
			through := open(t, options(a)).Transport(b)
			for n := range 3 {
				req, err := http.NewRequest(test.method, "http://example.com/", io.MultiReader(strings.NewReader("hello")))
				if err != nil {
					t.Fatal(err)
				}
				req.ContentLength = test.length
				res, err := through.RoundTrip(req)
				if err != nil {
					t.Fatalf("request %d: %v", n, err)
				}
				if got, _ := io.ReadAll(res.Body); string(got) != "hello <nil>" {
					t.Errorf("request %d arrives with the body %q", n, got)
				}
				res.Body.Close()
				last.Load().broken.Store(n == 0 && test.breaks)
				if n == 1 {
					countedOf(t, b, a).spend()
				}
			}
			if n := asked.Load(); n != 3+1 { // countedOf sends one request
				t.Errorf("the upstream was asked %d times", n)
			}
		})
	}
}

// countedOf returns the connection that b keeps for a.
func countedOf(t *testing.T, b *http.Transport, a Address) *CountedConn {
	t.Helper()
	l := new(link)
	at := &address{Address: a}
	req, err := http.NewRequest("GET", "http://example.com/", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := b.RoundTrip(at.attempt(req, l))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	res.Body.Close()
	l.judged()
	return l.conn.Load()
}

// An endlessBody has no declared end. Over HTTP/2 the end of the stream may be sent
// after the answer.
type endlessBody struct {
	*bytes.Reader
	closed chan struct{}
}

func (b *endlessBody) Read(p []byte) (int, error) {
	if b.Len() > 0 {
		return b.Reader.Read(p)
	}
	<-b.closed
	return 0, io.EOF
}

func (b *endlessBody) Close() error { return nil }

// A body is complete with the last byte of its declared length. Without a length
// only its end completes it.
func TestABodyIsCompleteWithItsLastByte(t *testing.T) {
	for _, test := range []struct {
		length int64
		whole  bool
	}{{5, true}, {6, false}, {-1, false}, {0, false}} {
		body := hold(&http.Request{Body: &endlessBody{bytes.NewReader([]byte("hello")), nil}, ContentLength: test.length})
		if _, err := io.ReadFull(body, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		if got := body.isWhole(); got != test.whole {
			t.Errorf("5 bytes of %d: whole is %v", test.length, got)
		}
	}
}

// If a connection may not be used again, it is closed when its answer ends, and the
// answer is complete.
func TestAConnectionWhoseAnswerCameEarlyIsClosedWithTheAnswer(t *testing.T) {
	l := listen(t, nil)
	ended := make(chan error, 1)
	go func() {
		far := <-l.accepted
		defer far.Close()
		req, err := http.ReadRequest(bufio.NewReader(far))
		if err != nil {
			ended <- err
			return
		}
		_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
		_, _ = io.Copy(io.Discard, req.Body)
		_, _ = io.WriteString(far, "k")
		_ = far.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, err = io.Copy(io.Discard, far)
		ended <- err
	}()
	b := countedBase(t, func(*brittleConn) {})
	through := open(t, options(Address{Host: l.Addr().String()})).Transport(b)
	body := &endlessBody{bytes.NewReader([]byte("hello")), make(chan struct{})}
	res, err := ask(t, through, "POST", body)
	if err != nil {
		t.Fatal(err)
	}
	close(body.closed) // after the head of the answer: net/http would keep the connection
	if got, err := io.ReadAll(res.Body); string(got) != "ok" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	res.Body.Close()
	if err := <-ended; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is open still: %v", err)
	}
}
