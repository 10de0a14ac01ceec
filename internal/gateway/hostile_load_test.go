package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir/answer"
)

// A reckless client speaks one version, asks like a client that leaves and comes back at any
// moment, and can destroy its connections.
type reckless struct {
	*http.Client
	scheme string

	mu    sync.Mutex
	conns []*net.TCPConn
}

// newReckless returns a client. Over HTTP/2 it uses one connection at a time; secure is for TLS.
func newReckless(t *testing.T, two, secure bool) *reckless {
	r := &reckless{scheme: "http"}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!two)
	protocols.SetHTTP2(two && secure)
	protocols.SetUnencryptedHTTP2(two && !secure)
	transport := &http.Transport{Protocols: protocols, DialContext: r.dial}
	if secure {
		r.scheme = "https"
		// its certificate is not what is tested
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec
	}
	t.Cleanup(transport.CloseIdleConnections)
	r.Client = &http.Client{Transport: transport}
	return r
}

func (r *reckless) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, c.(*net.TCPConn))
	return c, nil
}

// destroy resets all connections, whatever is under way on them.
func (r *reckless) destroy() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
	r.conns = nil
}

// Under load by clients that cancel requests and destroy connections, before an upstream that
// misbehaves, until a drain ends it: no answer reaches another caller, no request goes up twice,
// and each is counted before it goes up.
func TestHostileLoadUntilADrain(t *testing.T) {
	for name, version := range map[string]struct{ two, secure bool }{
		"HTTP/1.1": {false, false}, "HTTP/1.1 over TLS": {false, true}, "HTTP/2": {true, false}, "HTTP/2 over TLS": {true, true},
	} {
		t.Run(name, func(t *testing.T) { hostileLoad(t, version.two, version.secure) })
	}
}

func hostileLoad(t *testing.T, two, secure bool) {
	const clients, callers, enough = 3, 4, 600 // callers share a client
	o := newErratic(t)
	var counted, uncounted atomic.Int64
	o.arrives = func(seen int64) {
		if counted.Load() < seen {
			uncounted.Add(1)
		}
	}
	e := open(t, nil, func(options *Options) {
		o.use(options)
		if secure {
			options.Certificates = certificatesFor(t, t.TempDir(), "api.example.com")
		}
		options.Observe = func(answer.Observation) { counted.Add(1) }
	})
	kinds := []string{"", "chunks", "early", "hints", "half", "nothing", "nonsense", "unasked", "empty"}
	var asked atomic.Int64
	var drained atomic.Bool
	var all sync.WaitGroup
	for i := range clients {
		client := newReckless(t, two, secure)
		base := client.scheme + strings.TrimPrefix(e.url(""), "http")
		for j := range callers {
			all.Go(func() {
				for n := 0; !drained.Load(); n++ {
					body := strings.Repeat("x", []int{0, 10, 40_000}[n%3])
					askOwn(t, client.Client, base+"/v1/wp/x?kind="+kinds[(n+j)%len(kinds)], fmt.Sprintf("%d-%d-%d", i, j, n), body, n%7 == 6)
					if asked.Add(1); j == 0 && n%25 == 24 {
						client.destroy()
					}
				}
			})
		}
	}
	eventually(t, "enough was asked", func() bool { return asked.Load() >= enough })
	e.stop() // in the middle of it
	drained.Store(true)
	all.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, n := range o.seen {
		if n > 1 {
			t.Errorf("request %s was sent %d times", id, n)
		}
	}
	if n := len(o.seen); n < enough/3 || uncounted.Load() > 0 || e.gateway.InFlight() != 0 {
		t.Errorf("%d requests reached the upstream, %d of them uncounted; %d are under way", n, uncounted.Load(), e.gateway.InFlight())
	}
	proto := "proto=HTTP/1.1"
	if two {
		proto = "proto=HTTP/2.0"
	}
	if log := e.access.String(); strings.Count(log, proto) != strings.Count(log, "\n") {
		t.Errorf("not every request was %s", proto)
	}
	if log := e.log.String(); strings.Contains(log, "panic") {
		t.Errorf("log %q", log)
	}
}
