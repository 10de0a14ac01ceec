package verify_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/verify"
	"github.com/weirlimit/weir/policyfile"
)

// pipes is a listener in memory. In a synctest bubble no goroutine may wait for the
// real network, because the bubble's time advances only while all its goroutines
// are blocked.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	ports  atomic.Int32
}

func listen() *pipes {
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	l.ports.Store(40000)
	return l
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error   { close(l.closed); return nil }
func (l *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080} }

// A piped connection has a remote address.
type piped struct {
	net.Conn
	from net.Addr
}

func (c *piped) RemoteAddr() net.Addr { return c.from }

func (l *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(l.ports.Add(1))}
	select {
	case l.conns <- &piped{far, from}:
		return near, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// policyOf returns the policy that the server should enforce.
func policyOf(t *testing.T, rules []rule) weir.Policy {
	t.Helper()
	f, err := policyfile.Parse("small.yaml", []byte(document(rules)))
	if err != nil {
		t.Fatal(err)
	}
	return f.Policy
}

// pause advances a bubble's time.
func pause(d time.Duration) { time.Sleep(d) }

// inBubble serves the api in a new bubble, in which f runs.
func inBubble(t *testing.T, a *api, f func(t *testing.T, l *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(a.start) // a bubble begins at a full minute
		l := listen()
		s := &http.Server{Handler: a, ErrorLog: log.New(io.Discard, "", 0)}
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = s.Serve(l) // until it is closed
		}()
		defer func() {
			_ = s.Close()
			<-served
		}()
		f(t, l)
	})
}

// verified runs the verifier against a server.
func verified(t *testing.T, a *api, change func(*verify.Options)) (report *verify.Report) {
	t.Helper()
	inBubble(t, a, func(t *testing.T, l *pipes) {
		o := verify.Options{
			URL:    &url.URL{Scheme: "http", Host: "127.0.0.1:8080"},
			Policy: policyOf(t, a.rules), Agent: agent, Tokens: []string{tokenA, tokenB}, Dial: l.dial,
		}
		if change != nil {
			change(&o)
		}
		plan, err := verify.NewPlan(o)
		if err != nil {
			t.Fatal(err)
		}
		if report, err = plan.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if report.Sent > plan.Requests {
			t.Errorf("it sent %d requests, more than the planned %d", report.Sent, plan.Requests)
		}
		if int(a.seen.Load()) != report.Sent {
			t.Errorf("it reports %d requests, and the server has seen %d", report.Sent, a.seen.Load())
		}
	})
	return report
}
