package apps

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/e2e/apptest"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/policyfile"
)

const leadsLimit = "1000002"

const policy = `limiters:
  - name: widget-leads
    routes: [POST /api/v1/widget/leads]
    windows: [` + leadsLimit + ` per minute by ip]
  - name: wp-plugin
    routes: [/v1/wp/*]
    windows: [1000003 per minute by ip]
`

// onEachEngine runs a subtest on each engine.
func onEachEngine(t *testing.T, name string, test func(t *testing.T, engine gateway.Engine)) {
	for engine, of := range map[string]gateway.Engine{"fast": gateway.EngineAuto, "std": gateway.EngineStd} {
		t.Run(strings.TrimPrefix(name+"/"+engine, "/"), func(t *testing.T) { test(t, of) })
	}
}

// An edge is a listening gateway that counts the leads it admits.
type edge struct {
	t     *testing.T
	addr  string
	leads atomic.Int64
}

// before starts a gateway in front of an application server, until the test ends.
func before(t *testing.T, engine gateway.Engine, app *apptest.Server) *edge {
	t.Helper()
	e := &edge{t: t}
	file, err := policyfile.Parse("policy.yaml", []byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	decider, err := weir.New(file.Policy, store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{
		Engine: engine, Decider: decider, Identity: resolver, Log: slog.New(slog.DiscardHandler),
		Sites: gateway.To(&url.URL{Scheme: "http", Host: app.Addr}),
		Observe: func(o answer.Observation) {
			if o.Outcome == answer.Admitted && o.Limiter == "widget-leads" {
				e.leads.Add(1)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- g.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return e
}

// A caller is a client's connection that returns raw bytes. It fails on a timeout.
type caller struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

// caller opens a connection that ends with the test.
func (e *edge) caller() *caller {
	e.t.Helper()
	c, err := net.Dial("tcp", e.addr)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return &caller{e.t, c, bufio.NewReader(c)}
}

// A wholeAnswer is a response with its whole body.
type wholeAnswer struct {
	*http.Response
	text string
}

// send writes raw bytes on a new connection, and reads one answer.
func (e *edge) send(raw string) wholeAnswer {
	e.t.Helper()
	c := e.caller()
	defer c.Close()
	c.send("%s", raw)
	method, _, _ := strings.Cut(raw, " ")
	res, body := c.readAnswer(method)
	return wholeAnswer{res, body}
}

// ask sends one request line with a short header.
func (e *edge) ask(line string, header ...string) wholeAnswer {
	e.t.Helper()
	return e.send(line + " HTTP/1.1\r\nHost: weir.test\r\nConnection: close\r\n" + strings.Join(append(header, ""), "\r\n") + "\r\n")
}

// send sends text unchanged.
func (c *caller) send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.Conn, format, args...); err != nil {
		c.t.Fatal(err)
	}
}

// request sends a request without a body.
func (c *caller) request(line string) {
	c.t.Helper()
	c.send("%s HTTP/1.1\r\nHost: weir.test\r\n\r\n", line)
}

// readAnswer reads a whole answer to a request of a method, after any 100 Continue.
func (c *caller) readAnswer(method string) (*http.Response, string) {
	c.t.Helper()
	res, err := http.ReadResponse(c.in, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("an answer to %s: %v", method, err)
	}
	if res.StatusCode == http.StatusContinue {
		return c.readAnswer(method)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatalf("an answer to %s: %d, then %q and %v", method, res.StatusCode, body, err)
	}
	return res, string(body)
}
