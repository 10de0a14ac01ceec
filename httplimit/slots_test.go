package httplimit_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/httplimit"
)

// A slot is held until the handler has returned, in whatever way.
func TestASlotIsHeldUntilTheHandlerReturns(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(w http.ResponseWriter)
	}{
		{"an answer", func(w http.ResponseWriter) { ok(w, nil) }},
		{"a panic", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }},
		{"a panic in an answer", func(w http.ResponseWriter) {
			ok(w, nil)
			panic(http.ErrAbortHandler)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			arrived, leave := make(chan struct{}), make(chan struct{})
			e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
				arrived <- struct{}{}
				<-leave
				test.end(w)
			}, oneInFlight)
			ended := e.ended()
			c, _ := e.dial()
			for range 3 {
				_, _ = io.WriteString(c, "POST /v1/chat HTTP/1.1\r\nHost: weir.test\r\n\r\n")
				<-arrived
				e.wantHeld(1)
				e.send("POST /v1/chat").want(429, 1, 0, 1).wantFields("Retry-After", "1")
				<-ended // of the refusal
				leave <- struct{}{}
				<-ended
				e.wantHeld(0)
				c, _ = e.dial()
			}
			e.wantSpent(30)
		})
	}
}

// A handler that takes over the connection keeps the slot until it closes that, also after it has
// returned. It can settle the request until then.
func TestAHijackedConnectionHoldsItsSlot(t *testing.T) {
	hijacked := make(chan io.Closer, 1)
	e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		if err := httplimit.Settle(w, 3); err != nil {
			panic(err)
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\nhello")
		if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			panic(err)
		}
		hijacked <- c
	}, oneInFlight)
	ended := e.ended()
	c, r := e.dial()
	_, _ = io.WriteString(c, "GET /v1/socket HTTP/1.1\r\nHost: weir.test\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
	<-ended
	if rest, err := io.ReadAll(r); err != nil || !strings.HasSuffix(string(rest), "\r\n\r\nhello") {
		t.Errorf("the client reads %q, %v", rest, err)
	}
	e.wantHeld(1)
	e.wantSpent(3)
	e.send("POST /v1/chat").want(429, 1, 0, 1)
	taken := <-hijacked
	_ = taken.Close()
	e.wantHeld(0)
	_ = taken.Close() // it gives nothing back twice
	e.wantHeld(0)
}

// A handler that never closes a hijacked connection holds its slot no longer than there is a
// connection: until a read or a write fails, or the handler has dropped the connection.
func TestAHijackedConnectionThatIsNotClosedGivesItsSlotBack(t *testing.T) {
	type hijacked struct {
		net.Conn
		*bufio.ReadWriter
	}
	taken := make(chan *hijacked, 1)
	e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		taken <- &hijacked{c, rw}
	}, oneInFlight)
	open := func() (client net.Conn, h *hijacked) {
		client, _ = e.dial()
		_, _ = io.WriteString(client, "GET /v1/socket HTTP/1.1\r\nHost: weir.test\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\nearly")
		h = <-taken
		e.wantHeld(1)
		return client, h
	}
	t.Run("a read fails", func(t *testing.T) {
		client, h := open()
		early := make([]byte, len("early"))
		if _, err := io.ReadFull(h.Reader, early); err != nil || string(early) != "early" {
			t.Errorf("the handler reads %q, %v", early, err)
		}
		_ = h.SetReadDeadline(time.Unix(1, 0))
		if _, err := h.Read(early); err == nil {
			t.Error("a read after its deadline succeeds")
		}
		e.wantHeld(1) // a deadline ends a read, and not the connection
		_ = h.SetReadDeadline(time.Time{})
		_ = client.(*net.TCPConn).SetLinger(0)
		_ = client.Close()
		if _, err := h.Conn.Read(early); err == nil || err == io.EOF {
			t.Errorf("a read after a reset: %v", err)
		}
		e.wantHeld(0)
	})
	t.Run("a buffered write fails", func(t *testing.T) {
		client, h := open()
		_ = client.(*net.TCPConn).CloseWrite()
		if rest, err := io.ReadAll(h.Reader); string(rest) != "early" || err != nil {
			t.Errorf("the handler reads %q, %v", rest, err)
		}
		e.wantHeld(1) // the other half is open
		_ = h.Conn.(interface{ NetConn() net.Conn }).NetConn().Close()
		_, _ = h.WriteString("late")
		if err := h.Flush(); err == nil {
			t.Error("a write to a closed connection succeeds")
		}
		e.wantHeld(0)
	})
	t.Run("it is dropped", func(t *testing.T) {
		_, h := open()
		buffers := h.ReadWriter
		h = nil
		for range 3 {
			runtime.GC()
		}
		e.wantHeld(1) // its buffers are in use
		runtime.KeepAlive(buffers)
		buffers = nil
		for e.states()[1].Count > 0 {
			runtime.GC()
			runtime.Gosched()
		}
	})
}

// http.TimeoutHandler around the middleware answers for a handler that goes on. The slot is the
// handler's.
func TestAHandlerThatTimesOutHoldsItsSlot(t *testing.T) {
	arrived, leave := make(chan struct{}), make(chan struct{})
	e := setUp(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-leave
	}, oneInFlight)
	ended := e.ended()
	inner := e.server.Config.Handler
	e.server.Config.Handler = http.TimeoutHandler(inner, time.Millisecond, "too late")
	if got := e.send("POST /v1/chat"); got.status != 503 {
		t.Errorf("the status is %d", got.status)
	}
	<-arrived
	e.wantHeld(1)
	close(leave)
	<-ended
	e.wantHeld(0)
	e.wantSpent(10)
}
