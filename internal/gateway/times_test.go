package gateway

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// Connect includes the TLS handshake.
func TestAnUpstreamThatDoesNotConnectIsGivenUp(t *testing.T) {
	e := open(t, nil, func(o *Options) {
		rawUpstream(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })(o)
		o.Sites[0].Upstreams[0].Scheme = "https"
		o.Limits.Connect = 100 * time.Millisecond
	})
	want(t, e.ask("POST /api/v1/widget/leads", "Content-Length: 0"), http.StatusGatewayTimeout, "upstream_timeout", leads)
}

// UpstreamIdle bounds the pauses of an answer that has a length, and Stream those of one that has
// none. The client's own time-outs are longer than the test.
func TestAnAnswerThatPausesIsCutOff(t *testing.T) {
	for name, test := range map[string]struct {
		answer string
		limit  func(*Limits)
	}{
		"with a length": {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin", func(l *Limits) { l.UpstreamIdle = 100 * time.Millisecond }},
		"in chunks":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n", func(l *Limits) { l.Stream = 100 * time.Millisecond }},
		"to its end":    {"HTTP/1.1 200 OK\r\n\r\nbegin", func(l *Limits) { l.Stream = 100 * time.Millisecond }},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrigin(t, func(s *served) {
				if s.request() != nil {
					s.answers("%s", test.answer)
					_, _ = io.Copy(io.Discard, s) // until the gateway closes the connection
				}
			})
			e := open(t, nil, func(options *Options) { o.use(options); test.limit(&options.Limits) })
			c := e.caller()
			c.request("GET /v1/wp/status")
			if _, err := io.ReadAll(c); pace.IsTimeout(err) {
				t.Error("the client waits")
			}
			eventually(t, "the upstream's connection is closed", func() bool { return o.open.Load() == 0 && e.gateway.InFlight() == 0 })
		})
	}
}

// A websocket may be silent for Stream.
func TestASilentWebsocketEnds(t *testing.T) {
	o := newOrigin(t, func(s *served) {
		if s.request() != nil {
			s.answers(switching)
			_, _ = io.Copy(io.Discard, s)
		}
	})
	e := open(t, nil, func(options *Options) { o.use(options); options.Limits.Stream = 200 * time.Millisecond })
	e.socket().ends()
	eventually(t, "nothing is open", func() bool {
		return o.open.Load() == 0 && e.gateway.InFlight() == 0 && e.gateway.rules.TakenOver.Len() == 0
	})
}

// Of many tunnels of which one side has ended its half, none is left open on either side, even if
// the other side continues to send.
func TestHalfClosedTunnelsLeaveNoConnectionOpen(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	const tunnels = 50
	for name, test := range map[string]struct {
		byClient, pings bool
	}{
		"the client ends its half, the upstream is silent":     {true, false},
		"the client ends its half, the upstream pings forever": {true, true},
		"the upstream ends its half, the client is silent":     {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan bool)
			defer close(done)
			o := newOrigin(t, func(s *served) {
				if s.request() == nil {
					return
				}
				s.answers(switching)
				if !test.byClient {
					_ = s.Conn.(*net.TCPConn).CloseWrite()
				}
				tick := time.NewTicker(20 * time.Millisecond)
				defer tick.Stop()
				for test.pings {
					<-tick.C
					if _, err := io.WriteString(s.Conn, "ping"); err != nil {
						return
					}
				}
				<-done // it does not react
			})
			var upstreams atomic.Int64 // connections
			e := open(t, nil, func(options *Options) {
				o.use(options)
				options.Limits.Stall = 200 * time.Millisecond
				options.dial = func(connect dial) dial {
					return func(ctx context.Context, network, address string) (net.Conn, error) {
						c, err := connect(ctx, network, address)
						if err != nil {
							return nil, err
						}
						upstreams.Add(1)
						return &openConn{Conn: c, closed: sync.OnceFunc(func() { upstreams.Add(-1) })}, nil
					}
				}
			})
			var clients []*caller
			for range tunnels {
				c := e.socket()
				if clients = append(clients, c); test.byClient {
					_ = c.Conn.(*net.TCPConn).CloseWrite()
				}
			}
			for _, c := range clients {
				_ = c.SetDeadline(time.Now().Add(patience))
				if _, err := io.Copy(io.Discard, c.Reader); pace.IsTimeout(err) {
					t.Fatal("a client's connection is open")
				}
			}
			eventually(t, "no tunnel is open", func() bool {
				return upstreams.Load() == 0 && e.gateway.InFlight() == 0 && e.gateway.rules.TakenOver.Len() == 0 && e.gateway.Upstreams()[0].Busy == 0
			})
		})
	}
}

// An openConn reports once that it is closed.
type openConn struct {
	net.Conn
	closed func()
}

func (c *openConn) Close() error      { c.closed(); return c.Conn.Close() }
func (c *openConn) CloseWrite() error { return pace.CloseWrite(c.Conn) }
