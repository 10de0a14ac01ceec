package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"
)

// certificate returns a certificate for 127.0.0.1, and a client configuration that
// trusts it.
func certificate(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}, &tls.Config{RootCAs: roots}
}

func TestTLSIsUsedForHTTPSAddresses(t *testing.T) {
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
	again, err := p.Take(context.Background(), Want{}) // checked, and used again
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

func TestACertificateForAnotherNameIsRejected(t *testing.T) {
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

func TestAStalledTLSUpstreamTimesOutOnce(t *testing.T) {
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
		t.Errorf("closing took %v", took)
	}
}

// A corkedConn sends all writes while it is corked in one piece.
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

func TestUnrequestedTLSRecordsEndTheConnection(t *testing.T) {
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
		t.Error("took a connection with an unrequested answer")
		c.Drop(nil)
	}
}
