package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A listener accepts connections of a pool that really connects.
type listener struct {
	net.Listener
	accepted chan net.Conn
}

func listen(t testing.TB, around func(net.Listener) net.Listener) *listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if around != nil {
		l = around(l)
	}
	all := &listener{l, make(chan net.Conn, 100)}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.accepted <- c
		}
	})
	t.Cleanup(func() {
		l.Close()
		accepting.Wait()
		close(all.accepted)
		for c := range all.accepted {
			c.Close()
		}
	})
	return all
}

func options(addresses ...Address) Options {
	return Options{Addresses: addresses, Connect: 5 * time.Second, Header: time.Minute, Stall: 30 * time.Second,
		Idle: time.Minute, Log: slog.New(slog.DiscardHandler)}
}

func open(t testing.TB, o Options) *Pool {
	t.Helper()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// settle waits until a socket's other side has seen what was done to it: quiet says so.
func settle(t *testing.T, c *Conn) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); c.quiet(); {
		if time.Now().After(deadline) {
			t.Fatal("what the other side did does not show")
		}
	}
}

func TestAKeptConnectionIsTriedForSignsOfItsEnd(t *testing.T) {
	for name, done := range map[string]func(net.Conn) error{
		"closed":  func(c net.Conn) error { return c.Close() },
		"reset":   func(c net.Conn) error { return errors.Join(c.(*net.TCPConn).SetLinger(0), c.Close()) },
		"ended":   func(c net.Conn) error { return c.(*net.TCPConn).CloseWrite() },
		"unasked": func(c net.Conn) error { _, err := c.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, nil)
			p := open(t, options(Address{Host: l.Addr().String()}))
			c := take(t, p)
			far := <-l.accepted
			defer far.Close()
			if !c.quiet() {
				t.Fatal("a connection on which nothing happened is not quiet")
			}
			c.Keep(time.Now())
			if err := done(far); err != nil {
				t.Fatal(err)
			}
			settle(t, c)
			again, err := p.Take(context.Background(), Want{})
			if err != nil || again == c || again.Reused() {
				t.Errorf("took the same connection: %v, error %v", again == c, err)
			}
			again.Drop(nil)
		})
	}
}

func TestAQuietKeptConnectionIsUsedAgainEvenWhenADeadlineHasPassed(t *testing.T) {
	l := listen(t, nil)
	o := options(Address{Host: l.Addr().String()})
	o.Header = time.Nanosecond
	p := open(t, o)
	c := take(t, p)
	far := <-l.accepted
	defer far.Close()
	c.AwaitHead(time.Now())
	if _, err := c.Reader.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%v: want the deadline", err)
	}
	c.Keep(time.Now())
	again, err := p.Take(context.Background(), Want{})
	if err != nil || again != c {
		t.Fatalf("took another connection, %v", err)
	}
	c.AwaitStream()
	if _, err := far.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Reader.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	c.Drop(nil)
}

func TestAnotherGoroutineEndsAWait(t *testing.T) {
	n := new(network)
	p := poolOf(t, n, io.Discard, "a:80")
	c := take(t, p)
	c.AwaitStream()
	ended := make(chan error, 1)
	go func() { _, err := c.Reader.Read(make([]byte, 1)); ended <- err }()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("a read of a connection that was closed ended well")
	}
	c.Drop(net.ErrClosed)
	if a := p.addresses[0]; a.failures != 0 || a.busy != 0 {
		t.Errorf("%d failures, %d busy", a.failures, a.busy)
	}
}

func TestWhatIsLeftInTheBufferEndsTheConnection(t *testing.T) {
	n := new(network)
	p := poolOf(t, n, io.Discard, "a:80")
	c := take(t, p)
	go func() { _, _ = n.last("a:80").Write([]byte("HTTP/1.1 200 OK\r\n\r\nmore")) }()
	for len(c.Reader.Buffered()) < 8 {
		if err := c.Reader.Fill(1 << 10); err != nil {
			t.Fatal(err)
		}
	}
	c.Keep(time.Now())
	if n.opened() != 0 {
		t.Error("a connection with bytes of nobody's answer was kept")
	}
}

func TestIdleConnectionsAreClosedOldestFirstAndNoMoreThanMostAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(network)
		o := options(Address{Host: "a:80"})
		o.Dial, o.MostKept, o.Idle = n.dial, 2, 8*time.Second
		p := open(t, o)
		defer p.Close()
		one, two, three := take(t, p), take(t, p), take(t, p)
		one.Keep(time.Now())
		time.Sleep(4 * time.Second)
		two.Keep(time.Now())
		three.Keep(time.Now())
		if got := n.opened(); got != 2 {
			t.Fatalf("%d connections are kept, want 2", got)
		}
		for _, step := range []struct {
			wait time.Duration
			open int
		}{{4*time.Second - time.Millisecond, 2}, {time.Second + 2*time.Millisecond, 1}, {4 * time.Second, 0}} {
			time.Sleep(step.wait)
			synctest.Wait()
			if got := n.opened(); got != step.open {
				t.Errorf("%v later %d connections are open, want %d", step.wait, got, step.open)
			}
		}
	})
}

func TestADeadlineLastsAsLongAsItSaysAndAnEighthMoreAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(network)
		p := poolOf(t, n, io.Discard, "a:80")
		defer p.Close()
		c := take(t, p)
		waits := func(want time.Duration) {
			t.Helper()
			begun := time.Now()
			_, err := c.Reader.Read(make([]byte, 1))
			if took := time.Since(begun); !errors.Is(err, os.ErrDeadlineExceeded) || took < want || took > want+want/8 {
				t.Errorf("waited %v (%v), want %v and an eighth more at most", took, err, want)
			}
		}
		for range 3 {
			c.AwaitHead(time.Now())
			waits(time.Minute)
		}
		c.AwaitHead(time.Now())
		time.Sleep(7 * time.Second) // the deadline still leaves a minute
		set := c.readBy
		if c.AwaitHead(time.Now()); c.readBy != set {
			t.Error("a deadline that leaves enough was moved")
		}
		waits(time.Minute)
		c.AwaitHead(time.Now())
		c.AwaitBody(time.Now()) // less than the head's: it must come down
		waits(30 * time.Second)
		c.AwaitBody(time.Now())
		c.AwaitStream()
		go func() { time.Sleep(time.Hour); _, _ = n.last("a:80").Write([]byte("x")) }()
		if got, err := c.Reader.Read(make([]byte, 1)); got != 1 || err != nil {
			t.Errorf("a stream that was quiet for an hour: %d bytes, %v", got, err)
		}
		c.Drop(nil)
	})
}

func TestAWriteToAnUpstreamThatStopsReadingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(network)
		p := poolOf(t, n, io.Discard, "a:80")
		defer p.Close()
		c := take(t, p)
		far := n.last("a:80")
		go func() { // reads 64 KiB in 25 s, then 100 KiB more in 25 s each, and stops
			for range 3 {
				time.Sleep(25 * time.Second)
				_, _ = io.CopyN(io.Discard, far, 64<<10)
			}
		}()
		begun := time.Now()
		wrote, err := c.Write(make([]byte, 1<<20))
		took := time.Since(begun)
		if wrote != 3*64<<10 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("wrote %d bytes, %v; want three pieces and the deadline", wrote, err)
		}
		if stall := took - 75*time.Second; stall < 30*time.Second || stall > 34*time.Second {
			t.Errorf("gave up %v after the last progress, want 30 s and an eighth more at most", stall)
		}
		c.Drop(err)
	})
}

func TestAClientThatGoesAwayEndsItsConnectionAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{hangs: map[string]bool{"a:80": true}}
		p := poolOf(t, n, io.Discard, "a:80", "b:80")
		defer p.Close()
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)
		if _, err := p.Take(ctx, Want{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v: want the context's own", err)
		}
		if a := p.addresses[0]; a.failures != 0 || a.busy != 0 {
			t.Errorf("%d failures and %d busy for a client that went away", a.failures, a.busy)
		}
		p.next = 0
		begun := time.Now()
		c := take(t, p) // a, which takes all of Connect, then b
		if took := time.Since(begun); took != 5*time.Second || c.Address().Host != "b:80" || p.addresses[0].failures != 1 {
			t.Errorf("after %v on %v, %d failures counted", took, c.Address(), p.addresses[0].failures)
		}
		c.Drop(nil)
	})
}

func TestClosingAPoolLeavesNothingBehind(t *testing.T) {
	n := new(network)
	p := poolOf(t, n, io.Discard, "a:80", "b:80")
	late := take(t, p)
	var exchanges sync.WaitGroup
	for range 8 {
		exchanges.Go(func() {
			for i := range 200 {
				c, err := p.Take(context.Background(), Want{})
				if err != nil {
					if !errors.Is(err, net.ErrClosed) {
						t.Errorf("%v: want net.ErrClosed", err)
					}
					return
				}
				c.AwaitHead(time.Now())
				switch i % 5 {
				case 0:
					c.Drop(nil)
				case 1:
					c.Drop(io.EOF)
				default:
					c.Keep(time.Now())
				}
			}
		})
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	exchanges.Wait()
	late.Keep(time.Now())
	if got := n.opened(); got != 0 {
		t.Errorf("%d connections are open", got)
	}
	for _, a := range p.addresses {
		if a.busy != 0 {
			t.Errorf("%v has %d exchanges under way", a, a.busy)
		}
	}
}

// certificate returns one for 127.0.0.1, and a client's configuration that trusts it.
func certificate(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}, &tls.Config{RootCAs: roots}
}

func TestTLSIsSpokenWithAddressesThatWantIt(t *testing.T) {
	server, client := certificate(t)
	l := listen(t, func(l net.Listener) net.Listener { return tls.NewListener(l, server) })
	o := options(Address{TLS: true, Host: l.Addr().String()})
	o.TLS = client
	p := open(t, o)
	var echoes sync.WaitGroup
	defer echoes.Wait()
	echo := func() {
		c := <-l.accepted
		echoes.Go(func() { defer c.Close(); _, _ = io.Copy(c, c) })
	}
	ask := func(c *Conn) {
		t.Helper()
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		c.AwaitHead(time.Now())
		got := make([]byte, 5)
		if _, err := io.ReadFull(&c.Reader, got); err != nil || string(got) != "hello" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	go echo()
	c := take(t, p)
	ask(c)
	if state := c.Conn.(*tls.Conn).ConnectionState(); state.NegotiatedProtocol != "http/1.1" {
		t.Errorf("spoke %q", state.NegotiatedProtocol)
	}
	c.Keep(time.Now())
	again, err := p.Take(context.Background(), Want{}) // tried, and used again
	if err != nil || again != c {
		t.Fatalf("took another connection, %v", err)
	}
	ask(again)
	if err := again.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := again.Reader.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("the end after the half-close: %d bytes, %v", n, err)
	}
	again.Drop(nil)
	go echo()
	c = take(t, p)
	ask(c)
	if !c.Conn.(*tls.Conn).ConnectionState().DidResume {
		t.Error("the session was not resumed")
	}
	c.Drop(nil)
}

func TestACertificateForAnotherNameIsNoConnection(t *testing.T) {
	server, client := certificate(t)
	l := listen(t, func(l net.Listener) net.Listener { return tls.NewListener(l, server) })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	good, bad := Address{TLS: true, Host: "127.0.0.1:" + port}, Address{TLS: true, Host: "localhost:" + port}
	o := options(bad, good)
	o.TLS = client
	n := new(network)
	o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		n.open++
		return &countedConn{Conn: c, network: n}, err
	}
	p := open(t, o)
	go func() { // the handshakes happen on reading
		for c := range l.accepted {
			go func() { defer c.Close(); _, _ = io.Copy(io.Discard, c) }()
		}
	}()
	c := take(t, p)
	if c.Address() != good {
		t.Errorf("connected to %v", c.Address())
	}
	c.Drop(nil)
	if n.opened() != 0 {
		t.Errorf("%d connections are open", n.opened())
	}
	if p.addresses[0].failures != 1 {
		t.Errorf("%d failures of the address with the wrong name, want 1", p.addresses[0].failures)
	}
}

func TestTheSendingHalfOfATCPConnectionCanBeClosed(t *testing.T) {
	l := listen(t, nil)
	p := open(t, options(Address{Host: l.Addr().String()}))
	c := take(t, p)
	far := <-l.accepted
	defer far.Close()
	sent := bytes.Repeat([]byte("x"), 200<<10)
	go func() { _, _ = c.Write(sent); _ = c.CloseWrite() }()
	if got, err := io.ReadAll(far); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes, %v; want %d and the end", len(got), err, len(sent))
	}
	if _, err := far.Write([]byte("still here")); err != nil {
		t.Fatal(err)
	}
	far.Close()
	if got, err := io.ReadAll(&c.Reader); string(got) != "still here" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	c.Drop(nil)
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"1 to 64":       func(o *Options) { o.Addresses = nil },
		"HOST:PORT":     func(o *Options) { o.Addresses[0].Host = "backend" },
		"twice":         func(o *Options) { o.Addresses = append(o.Addresses, o.Addresses[0]) },
		"Connect":       func(o *Options) { o.Connect = 0 },
		"Header":        func(o *Options) { o.Header = -1 },
		"Stall":         func(o *Options) { o.Stall = 0 },
		"Idle":          func(o *Options) { o.Idle = 0 },
		"zero, for the": func(o *Options) { o.MostKept = -1 },
	} {
		o := options(Address{Host: "a:80"})
		change(&o)
		if p, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
			if p != nil {
				p.Close()
			}
		}
	}
}

func TestAnUpstreamThatStopsReadingTLSIsNotWaitedForTwice(t *testing.T) {
	server, client := certificate(t)
	l := listen(t, nil)
	o := options(Address{TLS: true, Host: l.Addr().String()})
	o.TLS, o.Stall = client, 20*time.Millisecond
	p := open(t, o)
	var handshake sync.WaitGroup
	handshake.Go(func() {
		far := <-l.accepted
		t.Cleanup(func() { far.Close() })
		if err := tls.Server(far, server).Handshake(); err != nil {
			t.Error(err)
		}
	})
	c := take(t, p)
	handshake.Wait()
	if _, err := c.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%v: want the deadline", err)
	}
	begun := time.Now()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	c.Drop(os.ErrDeadlineExceeded)
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("letting go took %v", took)
	}
}

// A corkedConn sends what is written while it is corked in one piece.
type corkedConn struct {
	net.Conn
	corked bool
	held   []byte
}

func (c *corkedConn) Write(p []byte) (int, error) {
	if c.corked {
		c.held = append(c.held, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func TestWhatTLSHasReadAndNobodyAskedForEndsTheConnection(t *testing.T) {
	server, client := certificate(t)
	l := listen(t, nil)
	o := options(Address{TLS: true, Host: l.Addr().String()})
	o.TLS = client
	p := open(t, o)
	done := make(chan error, 1)
	go func() {
		c := &corkedConn{Conn: <-l.accepted}
		s := tls.Server(c, server)
		err := s.Handshake()
		c.corked = true
		_, _ = s.Write([]byte("hello"))
		_, _ = s.Write([]byte("more")) // a record of its own, in the same piece
		_, _ = c.Conn.Write(c.held)
		done <- err
	}()
	c := take(t, p)
	c.AwaitHead(time.Now())
	got := make([]byte, 5)
	if _, err := io.ReadFull(c.Conn, got); err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	c.Keep(time.Now())
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // a new connection is not wanted
	if c, err := p.Take(ctx, Want{}); err == nil {
		t.Error("took a connection in which an answer lies that nobody asked for")
		c.Drop(nil)
	}
}
