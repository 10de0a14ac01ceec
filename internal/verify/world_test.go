package verify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/sample"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/policyfile"
)

// A network carries connections in memory, inside a synctest bubble.
type network struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	ports  atomic.Int64
}

func newNetwork() *network { return &network{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

func (n *network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 80), Port: 80} }

func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	from := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: int(1024 + n.ports.Add(1))}
	select {
	case n.conns <- addressed{theirs, from}:
		return ours, nil
	case <-n.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type addressed struct {
	net.Conn
	from net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.from }

// serving serves handler on the network until stop is called.
func (n *network) serving(handler http.Handler) (stop func()) {
	server := &http.Server{Handler: handler}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(n) })
	return func() {
		_ = server.Close()
		running.Wait()
	}
}

// options returns options for a server on the network.
func (n *network) options(p weir.Policy) Options {
	return Options{URL: &url.URL{Scheme: "http", Host: "api.example.com"}, Policy: p, Dial: n.dial}
}

// verified runs a verification, and checks that it follows its plan.
func verified(t *testing.T, o Options) *Report {
	t.Helper()
	plan, err := NewPlan(o)
	if err != nil {
		t.Fatal(err)
	}
	report, err := plan.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if report.Sent > plan.Requests || report.Planned != plan.Requests {
		t.Errorf("%d requests were sent, %d were planned, the report has %d", report.Sent, plan.Requests, report.Planned)
	}
	return report
}

// A product is gateway, limiter and sample backend.
type product struct {
	network *network
	policy  weir.Policy
	others  []string
	served  atomic.Int64
	close   func()
}

func openProduct(t *testing.T, p weir.Policy) *product {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	backend, err := sample.Open(t.Context(), sample.Options{Dir: t.TempDir(), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	x := &product{network: newNetwork(), policy: p}
	for range 2 {
		made, err := backend.Tokens().Create(t.Context(), "demo")
		if err != nil {
			t.Fatal(err)
		}
		x.others = append(x.others, made.Token)
	}
	g, err := gateway.New(gateway.Options{
		Decider:  decider(t, p),
		Identity: resolver(t, identity.Options{Sessions: backend.Sessions(), Tokens: backend.Tokens()}),
		Backend:  backend.Handler(),
		Log:      quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	handler := g.Handler()
	stop := x.network.serving(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x.served.Add(1)
		handler.ServeHTTP(w, r)
	}))
	x.close = func() {
		stop()
		backend.Close()
	}
	return x
}

func decider(t testing.TB, p weir.Policy) *weir.Decider {
	t.Helper()
	store, err := memstore.New(memstore.Options{Now: time.Now, Memory: memstore.MinMemory})
	if err != nil {
		t.Fatal(err)
	}
	d, err := weir.New(p, store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func resolver(t testing.TB, o identity.Options) *identity.Resolver {
	t.Helper()
	r, err := identity.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// policyOf parses a policy.
func policyOf(t testing.TB, source string) weir.Policy {
	t.Helper()
	f, err := policyfile.Parse("policy.yaml", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	return f.Policy
}

// table returns a report as text, a line for each result.
func table(r *Report) string {
	var b strings.Builder
	for _, x := range r.Results {
		fmt.Fprintf(&b, "%-8s %-20s %-24s %s\n", x.Verdict, x.Limiter, x.Clause, x.Detail)
		if x.Exchange != nil {
			fmt.Fprintf(&b, "%s\n\n%s\n\n", x.Exchange.Request, x.Exchange.Response)
		}
	}
	return b.String()
}
