package check_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirlimit/weir/internal/check"
)

// An envoy is the other side of a connection of the gRPC door, at the level of frames. All of it is
// in a bubble of synthetic time.
type envoy struct {
	*http2.Framer
	pongs, pings chan [8]byte // what the door has answered, and asked
	goAway       chan *http2.GoAwayFrame
	closed       chan struct{} // closed when the connection is
}

// dialing connects an envoy to a door, and sends nothing.
func dialing(t *testing.T) (e *envoy, conn net.Conn) {
	t.Helper()
	l := &pipes{conns: make(chan net.Conn), ended: make(chan struct{})}
	d := open(t, check.EnvoyGRPC, policy)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx, l) }()
	here, there := net.Pipe()
	t.Cleanup(func() {
		_ = here.Close()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	l.conns <- from{there, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 999}}
	e = &envoy{Framer: http2.NewFramer(here, here), pongs: make(chan [8]byte, 100), pings: make(chan [8]byte, 100), goAway: make(chan *http2.GoAwayFrame, 10), closed: make(chan struct{})}
	go e.read()
	return e, here
}

// connected connects an envoy to a door, and opens its HTTP/2.
func connected(t *testing.T) *envoy {
	t.Helper()
	e, conn := dialing(t)
	_, err := io.WriteString(conn, http2.ClientPreface)
	if err = errors.Join(err, e.WriteSettings()); err != nil {
		t.Fatal(err)
	}
	return e
}

// read reads frames until the door closes the connection.
func (e *envoy) read() {
	defer close(e.closed)
	for {
		f, err := e.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.PingFrame:
			if f.IsAck() {
				e.pongs <- f.Data
			} else {
				e.pings <- f.Data
			}
		case *http2.GoAwayFrame:
			e.goAway <- f
		}
	}
}

// isOpen reports whether the door has neither closed the connection nor announced that it will.
func (e *envoy) isOpen() bool {
	synctest.Wait()
	select {
	case <-e.closed:
		return false
	default:
		return len(e.goAway) == 0
	}
}

// Envoy's connection_keepalive asks more often than grpc-go allows by default, and would lose its
// connection.
func TestAnEnvoyMayAskOftenWhetherTheDoorLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := connected(t)
		for n := range byte(20) {
			time.Sleep(2 * time.Second)
			data := [8]byte{n}
			if err := e.WritePing(false, data); err != nil {
				t.Fatal(err)
			}
			if !e.isOpen() || len(e.pongs) != 1 || <-e.pongs != data {
				t.Fatalf("ping %d is not answered", n)
			}
		}
	})
}

func TestAnEnvoyThatDoesNotBeginIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := dialing(t)
		time.Sleep(11 * time.Second)
		if e.isOpen() {
			t.Error("after 11 seconds a connection without a preface is open")
		}
	})
}

// A machine that has gone sends no end of its connections.
func TestAnEnvoyThatHasGoneIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := connected(t)
		for range 3 {
			time.Sleep(61 * time.Second)
			if !e.isOpen() || len(e.pings) != 1 {
				t.Fatalf("after a quiet minute it is asked %d times whether it lives", len(e.pings))
			}
			if err := e.WritePing(true, <-e.pings); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		if e.isOpen() {
			t.Error("a connection whose other side does not answer stays open")
		}
	})
}

// The age varies by a tenth, so that connections which began together do not end together.
func TestAConnectionOfEnvoyIsReplacedAfterADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := connected(t)
		begin := time.Now()
		go func() {
			for {
				select {
				case data := <-e.pings:
					if e.WritePing(true, data) != nil {
						return
					}
				case <-e.closed:
					return
				}
			}
		}()
		var f *http2.GoAwayFrame
		select {
		case f = <-e.goAway:
		case <-time.After(48 * time.Hour):
			t.Fatal("after two days the door has not asked for another connection")
		}
		if age := time.Since(begin); f.ErrCode != http2.ErrCodeNo || age < 21*time.Hour || age > 27*time.Hour {
			t.Errorf("after %v the door asks for another connection with %v", age, f.ErrCode)
		}
		<-e.closed // no request is under way
	})
}
