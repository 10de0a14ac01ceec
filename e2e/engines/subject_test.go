package engines

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/e2e/nginxtest"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/memstore"
)

// A subject is a server in front of its own recording upstream.
type subject struct {
	name     string
	addr     string
	upstream *recorder
	gateway  *gateway.Gateway // nil if it is not ours, and counts nothing
	counted  atomic.Int64     // requests of this stream that the limiter admitted
	caller   caller
	// counted requests that have not reached the upstream, by the caller's address
	sent map[string]int64

	// requests of HTTP/2, whose server may begin them after the connection has ended; both by the
	// caller's address
	countedBy sync.Map // *atomic.Int64, admitted
	reached   map[string]int64
}

// send sends a stream in pieces and returns the outcome. An incomplete request of
// an earlier stream may reach the upstream only now; it was counted then, and
// belongs to no stream.
func (s *subject) send(t testing.TB, pieces []string, quiet time.Duration) *outcome {
	t.Helper()
	o := new(outcome)
	c, from := s.caller.dial(t, s.addr)
	o.exchange(c, pieces, quiet)
	s.settle(t)
	requests, anomalies := s.upstream.take(t)
	o.anomalies = anomalies
	s.sent[from.String()] = s.counted.Swap(0)
	for _, m := range requests {
		by := strings.Join(m.values("x-forwarded-for"), ", ")
		if _, known := s.sent[by]; s.gateway == nil || by == from.String() || m.cut && known {
			if s.sent[by]--; s.gateway != nil && s.sent[by] < 0 {
				o.uncounted++
			}
			if s.gateway == nil || by == from.String() {
				o.requests = append(o.requests, m)
			}
			continue
		}
		o.anomalies = append(o.anomalies, fmt.Sprintf("%s claims to come from %q", m.first, by))
	}
	return o
}

// settle waits until a gateway is idle.
func (s *subject) settle(t testing.TB) {
	t.Helper()
	if s.gateway == nil {
		return
	}
	late := time.After(patience)
	tick := time.NewTicker(time.Millisecond / 4)
	defer tick.Stop()
	for s.gateway.InFlight() > 0 {
		select {
		case <-late:
			t.Fatalf("%s still handles requests of a closed connection", s.name)
		case <-tick.C:
		}
	}
}

// policy counts all requests, with small limits under /few.
func policy() weir.Policy {
	return weir.Policy{Limiters: []weir.Limiter{
		{Name: "few", Routes: []weir.Route{{Path: "/few/", Prefix: true}}, Windows: []weir.Window{{Limit: 2, Per: time.Hour, Key: weir.Key{{"ip"}}}}},
		{Name: "all", Routes: []weir.Route{{Path: "/", Prefix: true}}, Windows: []weir.Window{{Limit: 1000, Per: time.Hour, Key: weir.Key{{"ip"}}}}},
	}}
}

// engines are the gateway's, the strictest first, with which the others are
// compared.
var engines = []struct {
	name   string
	engine gateway.Engine
}{
	{"fast", gateway.EngineAuto},
	{"std", gateway.EngineStd},
}

// newGateway returns a gateway in front of a recorder. Its clock does not move, so that two
// gateways report the same windows.
func newGateway(t testing.TB, name string, engine gateway.Engine, answers map[string]reply) *subject {
	t.Helper()
	s := &subject{name: name, upstream: newRecorder(t, answers), sent: map[string]int64{}}
	store, err := memstore.New(memstore.Options{Now: func() time.Time { return time.Unix(1_800_000_000, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	decider, err := weir.New(policy(), store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.gateway, err = gateway.New(gateway.Options{
		Engine:   engine,
		Decider:  decider,
		Identity: resolver,
		Sites:    gateway.To(&url.URL{Scheme: "http", Host: s.upstream.addr()}),
		Log:      slog.New(slog.DiscardHandler),
		Observe: func(o answer.Observation) {
			if o.Outcome == answer.Admitted {
				s.counted.Add(1)
				s.countBy(o.Caller)
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
	s.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.gateway.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}

// countBy counts a request by its caller's address.
func (s *subject) countBy(caller weir.Keys) {
	ip, _ := caller.AppendKey(nil, "ip")
	n, _ := s.countedBy.LoadOrStore(net.IP(ip).String(), new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

// countedOf returns how many were counted.
func (s *subject) countedOf(address string) int64 {
	if n, ok := s.countedBy.Load(address); ok {
		return n.(*atomic.Int64).Load()
	}
	return 0
}

// nginxConf is the usual configuration of nginx in front of an upstream, with
// keep-alive and websockets. Like the gateway, it streams bodies. Its placeholder
// is the recorder's address.
const nginxConf = `
	access_log off;
	error_log stderr crit;
	large_client_header_buffers 4 64k;
	client_max_body_size 0;
	upstream recorder { server %s; keepalive 16; }
	map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
	server {
		listen LISTEN;
		location / {
			proxy_pass http://recorder;
			proxy_http_version 1.1;
			proxy_request_buffering off;
			proxy_buffer_size 64k;
			proxy_buffers 8 64k;
			proxy_busy_buffers_size 128k;
			proxy_set_header Host $http_host;
			proxy_set_header Upgrade $http_upgrade;
			proxy_set_header Connection $connection_upgrade;
		}
	}
`

// newNginx returns Debian's nginx in front of a recorder.
func newNginx(t testing.TB, answers map[string]reply) *subject {
	t.Helper()
	s := &subject{name: "nginx", upstream: newRecorder(t, answers), sent: map[string]int64{}}
	s.addr = nginxtest.Start(t, fmt.Sprintf(nginxConf, s.upstream.addr())).Addr
	if o := s.send(t, whole(farewell), patience); len(o.answers) != 1 {
		t.Fatalf("nginx does not serve: %s", o.summary())
	}
	return s
}
