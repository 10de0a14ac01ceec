package http2

import (
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/gateway/rules"
)

// An oneConn is a listener of one connection.
type oneConn struct {
	net.Listener
	conn net.Conn
}

func (l oneConn) Accept() (net.Conn, error) { return l.conn, nil }

// A watched connection has a stream whose answer is awaited. Its engine looks at it when a test
// calls look.
type watched struct {
	*conn
	client net.Conn
	frames chan http2.Frame // that the client receives, without SETTINGS and windows
	framer *http2.Framer    // of the client
	ended  chan struct{}    // the connection has
	tick   int64
}

func watch(t *testing.T) *watched {
	t.Helper()
	client, server := net.Pipe()
	clock := pace.NewClock()
	l := &pace.Listener{Listener: oneConn{conn: server}, Limits: pace.Limits{Stall: time.Hour, Take: time.Hour}, Clock: clock}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	r := new(rules.Rules)
	r.Log = slog.New(slog.DiscardHandler)
	r.Limits.Header, r.Limits.Idle, r.Limits.Stall = time.Hour, time.Hour, time.Second
	e := &Engine{Rules: r, base: t.Context(), alive: map[*conn]struct{}{}}
	w := &watched{conn: newConn(e, accepted), client: client, frames: make(chan http2.Frame, 10), ended: make(chan struct{}), tick: 1}
	w.framer = http2.NewFramer(client, client)
	go func() {
		defer close(w.ended)
		e.serving.Add(1)
		w.serve()
	}()
	go w.readFrames()
	if _, err := io.WriteString(client, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := w.framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	w.ping(t, [8]byte{1}) // all of it was read when this is answered
	w.mu.Lock()
	w.open(1, true)
	w.mu.Unlock()
	t.Cleanup(func() {
		client.Close()
		server.Close()
		<-w.ended
		e.serving.Wait()
	})
	return w
}

func (w *watched) readFrames() {
	defer close(w.frames)
	for {
		f, err := w.framer.ReadFrame()
		if err != nil {
			return
		}
		switch f.(type) {
		case *http2.SettingsFrame, *http2.WindowUpdateFrame:
		default:
			w.frames <- f
		}
	}
}

// ping sends a PING and reads its answer.
func (w *watched) ping(t *testing.T, data [8]byte) {
	t.Helper()
	if err := w.framer.WritePing(false, data); err != nil {
		t.Fatal(err)
	}
	if f, ok := (<-w.frames).(*http2.PingFrame); !ok || !f.IsAck() || f.Data != data {
		t.Fatalf("%v, want the answer to a PING", f)
	}
}

// after looks at the connection when so many ticks have passed.
func (w *watched) after(ticks int64) {
	w.tick += ticks
	w.engine.tick.Store(w.tick)
	w.look(w.tick)
}

// isAsked looks until the client is asked whether it is there.
func (w *watched) isAsked(t *testing.T) {
	t.Helper()
	w.after(1)
	w.after(ticks(w.engine.Limits.Stall) + 1)
	if f, ok := (<-w.frames).(*http2.PingFrame); !ok || f.IsAck() {
		t.Fatalf("%v, want a PING: nothing has come for long", f)
	}
	w.mu.Lock()
	for w.writing { // so that all that was written is counted
		w.room.Wait()
	}
	w.mu.Unlock()
	w.after(1) // what the client has acknowledged until now does not count
}

// isGone checks whether the look has ended the connection.
func (w *watched) isGone(t *testing.T, want bool) {
	t.Helper()
	if got := w.stopping.Load(); got != want {
		t.Fatalf("the connection ends: %v, want %v", got, want)
	}
}

// A client that sends nothing while its answer is awaited is asked whether it is there, and the
// connection ends if it does not answer that either.
func TestAClientThatAnswersNoPingIsGone(t *testing.T) {
	w := watch(t)
	w.isAsked(t)
	w.after(ticks(pongTime))
	w.isGone(t, false)
	w.after(1)
	w.isGone(t, true)
	<-w.ended
	if f, open := <-w.frames; open {
		t.Errorf("the client receives %v, want the end", f)
	}
	if w.broken != errGone {
		t.Errorf("the connection ends with %v, want %v", w.broken, errGone)
	}
}

// A client that answers the PING stays, and is asked again when it is silent for as long again.
func TestAClientThatAnswersAPingStays(t *testing.T) {
	w := watch(t)
	for range 3 {
		w.isAsked(t)
		if err := w.framer.WritePing(true, [8]byte{}); err != nil {
			t.Fatal(err)
		}
		w.ping(t, [8]byte{2}) // that was read, too
	}
	w.after(1)
	w.after(ticks(w.engine.Limits.Stall))
	w.isGone(t, false)
}

// A client that takes something is waited for: the PING may be behind megabytes.
func TestAClientThatTakesSomethingIsWaitedFor(t *testing.T) {
	w := watch(t)
	w.isAsked(t)
	for range 3 {
		w.after(ticks(pongTime))
		w.isGone(t, false)
		w.mu.Lock()
		w.appendWindowUpdate(0, 1)
		w.mu.Unlock()
		w.flush()
		w.after(1) // the look finds that it was taken
	}
	w.after(ticks(pongTime))
	w.isGone(t, false)
	w.after(1)
	w.isGone(t, true)
}
