package http2

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirlimit/weir/internal/gateway/rules"
)

// newStreams returns a connection that has only what its streams need.
func newStreams(t *testing.T) *conn {
	c := newSending()
	c.engine.Rules, c.engine.base = new(rules.Rules), t.Context()
	c.streams = make(map[uint32]*stream)
	c.receiving.begin()
	return c
}

// receive takes a DATA frame as the read loop does.
func (c *conn) receive(t *testing.T, s *stream, p []byte, ends bool) {
	t.Helper()
	err := c.take(s, int64(len(p)))
	if err == nil {
		err = s.onData(p, int64(len(p)), ends)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A body that came whole, and that nobody has read when its answer is complete, gives its window
// back.
func TestABodyThatIsAnsweredUnreadGivesItsWindowBack(t *testing.T) {
	c := newStreams(t)
	s := c.open(1, false)
	s.length = -1
	c.receive(t, s, make([]byte, 10_000), true)
	s.complete()
	if len(c.streams) != 0 || c.left+c.credit != connWindow || s.buffer != nil {
		t.Errorf("%d streams, %d bytes of %d are in the window, %d are held", len(c.streams), c.left+c.credit, connWindow, len(s.buffer))
	}
}

// A frame that is more than its stream's window ends the stream, and not the other ones' window.
func TestAFrameBeyondItsStreamsWindowGivesTheConnectionsBack(t *testing.T) {
	c := newStreams(t)
	s := c.open(1, false)
	s.left = 100
	if err := c.take(s, 1000); err == nil {
		t.Error("it is accepted")
	}
	if c.left+c.credit != connWindow {
		t.Errorf("%d bytes of %d are in the window", c.left+c.credit, connWindow)
	}
}

// A stream that is reset counts as open until it is served no more, whoever has reset it: else a
// client could have more requests under way than streams, by asking for errors.
func TestAStreamThatIsResetCountsUntilItIsServedNoMore(t *testing.T) {
	for name, reset := range map[string]func(*conn, *stream){
		"by the client": func(_ *conn, s *stream) { s.endByClient() },
		"here":          func(c *conn, s *stream) { c.reset(s, http2.ErrCodeFlowControl) },
	} {
		c := newStreams(t)
		c.last = 1
		s := c.open(1, true)
		if reset(c, s); len(c.streams) != 1 {
			t.Errorf("%s: it does not count any more", name)
		}
		// What the client has sent before it knew is ignored.
		if kind, err := c.beginBlock(1); name == "here" && (kind != ofReset || err != nil) {
			t.Errorf("%s: its trailers are %d, %v", name, kind, err)
		}
		if s.release(); len(c.streams) != 0 {
			t.Errorf("%s: it counts for ever", name)
		}
	}
}

// A stream whose body was read keeps no large buffer: it may be open for long, and its window is
// given back.
func TestABodyThatWasReadHoldsNoMemory(t *testing.T) {
	c := newStreams(t)
	s := c.open(1, false)
	s.length = -1
	for range streamWindow / largestFrame {
		c.receive(t, s, make([]byte, largestFrame), false)
	}
	b := requestBody{x: &exchange{c: c, s: s}}
	c.broken = errStopped // nothing is to be written
	for p := make([]byte, maxRead); len(s.buffer) > 0; {
		if _, _, err := b.takeSome(p); err != nil {
			t.Fatal(err)
		}
	}
	if cap(s.buffer) > maxRead {
		t.Errorf("%d bytes are held", cap(s.buffer))
	}
}

// A noticing connection reports that its deadline was taken away.
type noticing struct {
	net.Conn
	cleared chan struct{}
}

func (n *noticing) SetReadDeadline(at time.Time) error {
	err := n.Conn.SetReadDeadline(at)
	if at.IsZero() {
		n.cleared <- struct{}{}
	}
	return err
}

// A connection rests between two requests, and not between the parts of a head: its Framer knows
// what has to come.
func TestAConnectionDoesNotRestInAHead(t *testing.T) {
	for _, midway := range []bool{false, true} {
		client, server := net.Pipe()
		r := new(rules.Rules)
		r.Limits.Header, r.Limits.Idle, r.Limits.Stall = time.Hour, time.Hour, time.Hour
		c := newConn(&Engine{Rules: r, base: t.Context()}, &noticing{server, make(chan struct{}, 10)})
		f := http2.NewFramer(nil, &c.in)
		c.framer = f
		if midway {
			c.block.id = 1
		}
		came := make(chan bool)
		go func() { came <- c.await() == hasCome }()
		for c.waits.Load() == 0 {
			runtime.Gosched()
		}
		c.look(c.waits.Load() + restAfter)
		<-c.raw.(*noticing).cleared
		go func() { _, _ = client.Write([]byte{0}) }()
		if !<-came {
			t.Fatal("the wait ends the connection")
		}
		if (c.framer == f) != midway {
			t.Errorf("in a head %v: the Framer is kept: %v", midway, c.framer == f)
		}
		client.Close()
		server.Close()
	}
}

// The last stream that a GOAWAY names never rises (RFC 9113, section 6.8), also if the connection
// ends with an error after others were refused.
func TestTheLastStreamThatIsNamedNeverRises(t *testing.T) {
	c := newStreams(t)
	c.last = 1
	c.open(1, true)
	c.name()
	if kind, err := c.beginBlock(5); kind != ofRefused || err != nil {
		t.Errorf("a later stream is %d, %v", kind, err)
	}
	c.engine.Log = slog.New(slog.DiscardHandler)
	c.finish(http2.ConnectionError(http2.ErrCodeProtocol))
	f := http2.NewFramer(nil, bytes.NewReader(c.out))
	for range 2 {
		frame, err := f.ReadFrame()
		if g, ok := frame.(*http2.GoAwayFrame); err != nil || !ok || g.LastStreamID != 1 {
			t.Errorf("%v, %v, want a GOAWAY with 1", frame, err)
		}
	}
}

// 100 Continue is sent before an answer, and never after its head: a client would take it for
// trailers.
func TestNoContinueFollowsTheHeadOfAnAnswer(t *testing.T) {
	for _, answered := range []bool{false, true} {
		c := newStreams(t)
		c.writing = true // nothing is to be written
		x := &exchange{c: c, s: c.open(1, false)}
		b := requestBody{x: x, expects: true}
		if answered {
			c.mu.Lock()
			x.appendHead(http.StatusOK, false)
			c.mu.Unlock()
		}
		before := len(c.out)
		_, _, _ = b.takeSome(make([]byte, 10))
		if (len(c.out) == before) != answered {
			t.Errorf("answered %v: %d bytes are sent", answered, len(c.out)-before)
		}
	}
}

// A stream that has ended on both sides is used again, and nothing that knew it reaches the next
// request. One that a late frame, a body's reader or the end of a context may still mean is not.
func TestAStreamIsUsedAgainOnlyIfNothingRefersToIt(t *testing.T) {
	c := newStreams(t)
	finish := func(s *stream) {
		s.complete()
		s.release()
	}
	first := c.open(1, true)
	first.window, first.begun = 1, true
	stop := first.ctx.AfterFunc(func() {})
	if !stop() {
		t.Fatal("it is not stopped")
	}
	finish(first)
	second := c.open(3, true)
	if second != first || second.id != 3 || second.window != c.firstWindow || second.begun || second.over || second.served {
		t.Fatalf("%+v, want the first stream as if it were new", second)
	}
	stopSecond := second.ctx.AfterFunc(func() {})
	if stop() || !stopSecond() {
		t.Error("what the first request has registered stops what the second has")
	}
	for what, spoil := range map[string]func(s *stream){
		"whose client has not ended its side": func(s *stream) { s.ended = false },
		"that was reset":                      func(s *stream) { c.reset(s, http2.ErrCodeCancel) },
		"that had a body":                     func(s *stream) { s.length = 4 },
		"among those that wait to send":       func(s *stream) { s.waits = true },
		"whose context is waited for":         func(s *stream) { _ = s.ctx.Done() },
		"whose end has something to call":     func(s *stream) { s.ctx.AfterFunc(func() {}) },
	} {
		s := c.open(c.last+2, true)
		c.last += 2
		spoil(s)
		if finish(s); len(c.spare) > 0 {
			t.Errorf("a stream %s is used again", what)
		}
		c.spare = nil
	}
	for id := range uint32(3 * maxSpare) {
		s := &stream{c: c, id: 1001 + 2*id, served: true, over: true, ctx: new(callContext)}
		c.keep(s)
	}
	if len(c.spare) != maxSpare {
		t.Errorf("%d streams are kept, want %d", len(c.spare), maxSpare)
	}
}
