package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// echoing sends back each connection's bytes.
func echoing(t testing.TB, around func(net.Listener) net.Listener) *listener {
	t.Helper()
	var all sync.WaitGroup
	t.Cleanup(all.Wait) // after the listener's end
	l := listen(t, around)
	all.Go(func() {
		for c := range l.accepted {
			all.Go(func() { defer c.Close(); _, _ = io.Copy(c, c) })
		}
	})
	return l
}

// asked calls c.Ask and returns the beginning of the answer.
func asked(c *Conn, request string) (string, error) {
	c.Ask([]byte(request))
	c.AwaitHead(time.Now())
	err := c.Reader.Fill(64)
	got := string(c.Reader.Buffered())
	c.Reader.Discard(len(got))
	return got, err
}

func takeToAsk(t testing.TB, p *Pool) *Conn {
	t.Helper()
	c, err := p.Take(context.Background(), Want{Ask: true})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAskWorksOnFreshAndKeptConnections(t *testing.T) {
	server, client := certificate(t)
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			var around func(net.Listener) net.Listener
			if secure {
				around = func(l net.Listener) net.Listener { return tls.NewListener(l, server) }
			}
			o := options(Address{TLS: secure, Host: echoing(t, around).Addr().String()})
			o.TLS = client
			p := open(t, o)
			var before *Conn
			for i, request := range []string{"one", "two, longer", "3"} {
				c := takeToAsk(t, p)
				if i > 0 && c != before {
					t.Fatal("the kept connection was not used")
				}
				if got, err := asked(c, request); got != request || err != nil || c.Asked() != len(request) {
					t.Fatalf("exchange %d: %q of %q, %d bytes sent, %v", i, got, request, c.Asked(), err)
				}
				c.Keep(time.Now())
				before = c
			}
		})
	}
}

func TestAskWritesNothingToAStaleConnection(t *testing.T) {
	server, client := certificate(t)
	for name, done := range map[string]func(net.Conn) error{
		"closed":  func(c net.Conn) error { return c.Close() },
		"ended":   func(c net.Conn) error { return c.(interface{ CloseWrite() error }).CloseWrite() },
		"unasked": func(c net.Conn) error { _, err := c.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); return err },
	} {
		for how, secure := range map[string]bool{" plain": false, " TLS": true} {
			t.Run(name+how, func(t *testing.T) {
				var around func(net.Listener) net.Listener
				if secure {
					around = func(l net.Listener) net.Listener { return tls.NewListener(l, server) }
				}
				l := listen(t, around)
				o := options(Address{TLS: secure, Host: l.Addr().String()})
				o.TLS = client
				p := open(t, o)
				shaken := make(chan net.Conn, 1)
				go func() {
					far := <-l.accepted
					if s, ok := far.(*tls.Conn); ok {
						_ = s.Handshake()
					}
					shaken <- far
				}()
				c := takeToAsk(t, p)
				far := <-shaken
				defer far.Close()
				c.Keep(time.Now())
				if err := done(far); err != nil {
					t.Fatal(err)
				}
				settle(t, c)
				again := takeToAsk(t, p)
				if again != c {
					t.Fatal("Take checked the kept connection")
				}
				if got, err := asked(again, "request"); !errors.Is(err, ErrStale) || again.Asked() != 0 {
					t.Errorf("%q, %d bytes sent, %v: want ErrStale and none", got, again.Asked(), err)
				}
				again.Drop(nil)
			})
		}
	}
}

// If a request exceeds the socket's buffer, Ask waits, and the whole request
// arrives.
func TestAskSendsARequestLargerThanTheSocketsBuffer(t *testing.T) {
	l := listen(t, nil)
	p := open(t, options(Address{Host: l.Addr().String()}))
	c := takeToAsk(t, p)
	far := <-l.accepted
	defer far.Close()
	request := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB
	received := make(chan bool)
	go func() {
		got := make([]byte, len(request))
		_, err := io.ReadFull(far, got)
		_, _ = far.Write([]byte("ok"))
		received <- err == nil && bytes.Equal(got, request)
	}()
	if got, err := asked(c, string(request)); got != "ok" || err != nil || c.Asked() != len(request) {
		t.Errorf("%q, %d of %d bytes sent, %v", got, c.Asked(), len(request), err)
	}
	if !<-received {
		t.Error("the request did not arrive unchanged")
	}
	c.Drop(nil)
}

func TestAskReportsTheBytesSentIfNoAnswerArrives(t *testing.T) {
	for name, end := range map[string]struct {
		far  func(far net.Conn, c *Conn) error
		want error
	}{
		"the other side ends":    {func(far net.Conn, _ *Conn) error { return far.Close() }, io.EOF},
		"our side closes":        {func(_ net.Conn, c *Conn) error { return c.Close() }, net.ErrClosed},
		"the time for it passes": {func(_ net.Conn, c *Conn) error { return c.SetReadDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, nil)
			p := open(t, options(Address{Host: l.Addr().String()}))
			c := takeToAsk(t, p)
			far := <-l.accepted
			defer far.Close()
			ended := make(chan error)
			go func() {
				_, err := io.ReadFull(far, make([]byte, len("request"))) // then it waits
				ended <- errors.Join(err, end.far(far, c))
			}()
			got, err := asked(c, "request")
			if !errors.Is(err, end.want) || got != "" || c.Asked() != len("request") {
				t.Errorf("%q, %d bytes sent, %v: want %v, all sent", got, c.Asked(), err, end.want)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			c.Drop(nil)
		})
	}
}

func TestAskReturnsPlainNetworkErrors(t *testing.T) {
	l := listen(t, nil)
	o := options(Address{Host: l.Addr().String()})
	o.Header = time.Millisecond
	p := open(t, o)
	c := takeToAsk(t, p)
	_, err := asked(c, "request")
	var opError *net.OpError
	if !errors.As(err, &opError) || opError.Op != "read" || !opError.Timeout() {
		t.Errorf("%v: want a read that timed out", err)
	}
	c.Drop(nil)
}

func TestAskAllocatesNothing(t *testing.T) {
	p := open(t, options(Address{Host: echoing(t, nil).Addr().String()}))
	request := []byte("request")
	if n := testing.AllocsPerRun(100, func() {
		c, err := p.Take(context.Background(), Want{Ask: true})
		if err != nil {
			t.Fatal(err)
		}
		c.Ask(request)
		c.AwaitHead(time.Now())
		if err := c.Reader.Fill(64); err != nil {
			t.Fatal(err)
		}
		c.Reader.Discard(c.Reader.Len())
		c.Keep(time.Now())
	}); n >= 1 {
		t.Errorf("%v allocations an exchange", n)
	}
}

// A server that is full, or about to stop, may send an error as soon as a client
// connects. Ask returns it. The poller's event may come before the wait, and does
// not come twice.
func TestAskReturnsAnAnswerThatCameBeforeTheRequest(t *testing.T) {
	l := listen(t, nil)
	o := options(Address{Host: l.Addr().String()})
	o.Header = 10 * time.Second
	p := open(t, o)
	for range 20 {
		c, other := takeToAsk(t, p), takeToAsk(t, p)
		far, farOther := <-l.accepted, <-l.accepted
		received := make(chan error)
		go func() {
			_, err := io.ReadFull(&other.Reader, make([]byte, 1))
			received <- err
		}()
		_, err := far.Write([]byte("answer"))
		settle(t, c)
		// The poller reports both at once, if it has not reported the first before.
		_, errOther := farOther.Write([]byte("x"))
		if err := errors.Join(err, errOther, <-received); err != nil {
			t.Fatal(err)
		}
		if got, err := asked(c, "request"); got != "answer" || err != nil {
			t.Fatalf("%q, %v: want the waiting bytes", got, err)
		}
		c.Drop(nil)
		other.Drop(nil)
		far.Close()
		farOther.Close()
	}
}
