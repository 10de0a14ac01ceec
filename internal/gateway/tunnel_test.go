package gateway

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// If either side of a tunnel is gone, the tunnel ends even if the other side does
// not react. No request or connection is left. A side that is gone may look like
// one that has closed its half.
func TestATunnelEndsIfOneSideIsGone(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	for name, leave := range map[string]func(c *caller, s *served){
		"the client closes":          func(c *caller, _ *served) { c.Close() },
		"the client ends its half":   func(c *caller, _ *served) { _ = c.Conn.(*net.TCPConn).CloseWrite() },
		"the client resets":          func(c *caller, _ *served) { _ = c.Conn.(*net.TCPConn).SetLinger(0); c.Close() },
		"the upstream ends its half": func(_ *caller, s *served) { _ = s.Conn.(*net.TCPConn).CloseWrite() },
		"the upstream closes":        func(_ *caller, s *served) { s.Conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			switched, done := make(chan *served, 1), make(chan bool)
			defer close(done)
			o := newOrigin(t, func(s *served) {
				if s.request() == nil {
					return
				}
				s.answers(switching)
				switched <- s
				<-done // it does not react
			})
			policy := slotsOf(t, 1)
			e := open(t, nil, func(options *Options) {
				o.use(options)
				policy.use(options)
				options.Limits.Stall = 300 * time.Millisecond
			})
			c := e.socket()
			s := <-switched
			if held := policy.slots(); held != 1 {
				t.Errorf("the tunnel holds %d slots", held)
			}
			leave(c, s)
			eventually(t, "the tunnel ends", func() bool {
				return e.gateway.InFlight() == 0 && e.gateway.rules.TakenOver.Len() == 0
			})
			eventually(t, "its slot is free", func() bool { return policy.slots() == 0 })
			if !strings.HasPrefix(name, "the upstream") {
				_ = s.Conn.SetReadDeadline(time.Now().Add(patience))
				if _, err := io.Copy(io.Discard, s); pace.IsTimeout(err) {
					t.Error("the upstream's connection is open")
				}
			}
			for _, a := range e.gateway.rules.Sites[0].Pool.States() {
				if a.Busy != 0 {
					t.Errorf("%d exchanges are in flight at %v", a.Busy, a.Address)
				}
			}
		})
	}
}

// After one side has closed its half, the other side's data is still forwarded. A
// tunnel may be silent in both directions.
func TestATunnelContinuesAfterAHalfCloseAndWhenSilent(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	const stall, pieces = 300 * time.Millisecond, 12
	o := newOrigin(t, func(s *served) {
		if s.request() == nil {
			return
		}
		s.answers(switching)
		tick := time.NewTicker(stall / 3)
		defer tick.Stop()
		for range pieces / 2 {
			<-tick.C // it is silent, and both halves are open
		}
		_, _ = io.Copy(io.Discard, s) // until the client has closed its half
		for range pieces {
			<-tick.C
			s.answers("x")
		}
	})
	e := open(t, nil, func(options *Options) { o.use(options); options.Limits.Stall = stall })
	c := e.socket()
	quiet := time.NewTimer(2 * stall)
	<-quiet.C
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	if b, err := io.ReadAll(c); len(b) != pieces || err != nil {
		t.Errorf("%q, %v; want %d pieces", b, err, pieces)
	}
}
