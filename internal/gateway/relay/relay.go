// Package relay asks an upstream, by its pool, for a request that net/http has read: it sends the
// request, and its body while the answer is awaited, and reads the answer. It knows nothing of the
// client. One call goes down these files:
//
//	relay.go   a connection for the request, and another one if nothing of it went out
//	upload.go  the request's body, sent while the answer is awaited
//	answer.go  the answer's head, body and trailers
//	copy.go    the buffers that bodies are copied through, and their framing
//	tunnel.go  websockets
//
// The fast engine, whose own loop does the rest of this while it watches its client's connection,
// uses Upload, Heads, Tunnel and all of copy.go.
package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/upstream"
	"github.com/weirlimit/weir/internal/wire"
)

// A Call is one request to an upstream, and its answer. Make one with New, set the fields before
// Answer, call Do once, read the answer, and call End in any case. A Call is for one goroutine at a
// time.
type Call struct {
	Pool    *upstream.Pool
	Method  string
	Buffers *Buffers
	Log     *slog.Logger

	// Request is the head, and a body that is sent in the same write.
	Request []byte

	// Body, if set, is sent after Request, as it comes, by a goroutine of the Call. Its Close must
	// end a Read that another goroutine is in. The Call closes it if the end of the answer, or a
	// failure, comes before its end.
	Body   io.ReadCloser
	Length int64   // of Body, which then has neither more nor less; 0: not known
	How    Framing // of Body
	// Trailers returns the trailers of a Body in chunks, once it has ended; nil: it has none.
	Trailers func() []wire.Field

	// Alone means that the connection ends with the call, as for a Request with Connection: close.
	Alone bool

	// Continue, if set, means that Request has Expect: 100-continue. Do calls it before Body is
	// read: when the upstream asks for that, or is silent for a second. After a final answer Body
	// is not read at all.
	Continue func()

	// Upgrades means that Request asks for a websocket. A 101 is a final answer then, and Conn
	// returns the connection.
	Upgrades bool

	// Inform, if set, is called by Do for each informational answer but 100.
	Inform func(*wire.Response)

	// Answer is the head of the answer, of which all strings may be kept. At is the address that
	// was asked last; the zero value: none was. Do sets them.
	Answer wire.Response
	At     upstream.Address

	ctx    context.Context // Do's
	conn   *upstream.Conn
	forget func() bool // of the context's end
	begun  bool        // some of the request went out
	sent   bool        // the request went out whole
	early  bool        // the answer came before the request's body had come in whole
	whole  atomic.Bool // the body went out whole; its end may still be awaited
	upload *Upload     // nil: the body is not being sent
	heads  Heads
	body   wire.Body
}

var calls = sync.Pool{New: func() any { return new(Call) }}

// New returns a Call. Its Request is empty, and has room.
func New() *Call { return calls.Get().(*Call) }

// maxKept is the size of the largest buffer that a Call keeps for the next one.
const maxKept = 24 << 10

// A BodyError is why the body of a request did not arrive whole. It does not count against the
// upstream.
type BodyError struct{ Err error }

func (e *BodyError) Error() string { return fmt.Sprintf("read the request's body: %v", e.Err) }
func (e *BodyError) Unwrap() error { return e.Err }

// Do sends the request and reads the head of its answer. The upstream may close a kept connection
// at any moment, and a new one as soon as it is made. The request goes to another connection then
// if no byte of it went out, whatever its method: the upstream cannot have read it. A request of
// which a byte went out may have been read, even without an answer, and was counted once; it is
// not sent again. The error is ctx's if that has ended, a *BodyError, or what the upstream has
// failed with. now is time.Now() of moments ago.
func (c *Call) Do(ctx context.Context, now time.Time) error {
	c.ctx = ctx
	for want := (upstream.Want{Now: now, Ask: c.Body == nil}); ; {
		u, err := c.Pool.Take(ctx, want)
		if err != nil {
			return err
		}
		c.conn, c.At = u, u.Address()
		c.forget = afterFunc(ctx, func() { _ = u.Close() })
		if !u.Reused() {
			now = time.Now() // connecting took a while
		}
		if err = c.talk(u, now); err == nil {
			return nil
		}
		gone := ctx.Err() // before the upload is ended, which may end ctx
		received, stuck := c.endUpload()
		if stuck != nil {
			err = stuck
		}
		stale := errors.Is(err, upstream.ErrStale)
		switch {
		case received != nil:
			c.drop(nil)
			return &BodyError{received}
		case gone != nil:
			c.drop(nil)
			return gone
		case !stale && (c.begun || pace.IsTimeout(err)):
			c.drop(err) // after a time-out the client has waited enough
			return err
		case u.Reused():
			c.drop(nil) // a kept connection that ends does not count against its address
			want.Fresh = !stale
		default:
			want = u.Else(want, err)
			c.drop(err)
		}
	}
}

// afterFunc is context.AfterFunc, without its cost for a context that has a method for that.
func afterFunc(ctx context.Context, f func()) (stop func() bool) {
	if own, ok := ctx.(interface{ AfterFunc(func()) func() bool }); ok {
		return own.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}

// talk sends the request on u, now, and reads the head of the answer.
func (c *Call) talk(u *upstream.Conn, now time.Time) error {
	if c.Body != nil {
		n, err := u.Write(c.Request)
		c.begun = c.begun || n > 0
		if err != nil {
			return err
		}
	}
	switch {
	case c.Body == nil:
		u.Ask(c.Request)
		u.AwaitHead(now)
	case c.Continue != nil:
		u.AwaitContinue(now)
	default:
		c.startUpload(u)
	}
	for {
		head, err := c.heads.Next(u)
		if c.Body == nil {
			c.begun, c.sent = u.Asked() > 0, u.Asked() == len(c.Request)
		}
		if err != nil && pace.IsTimeout(err) && c.isHeld() {
			c.Continue() // the upstream does not answer Expect
			c.startUpload(u)
			continue
		}
		if err == nil {
			// the fields of the answer are kept by those that they are passed on to
			err = Parse(&c.Answer, string(head), c.Method)
		}
		if err != nil {
			return err
		}
		u.Answered()
		switch {
		case c.Answer.Status == http.StatusSwitchingProtocols:
			if !c.Upgrades {
				return errSwitched
			}
			return nil
		case c.Answer.Status >= 200:
			if c.upload != nil {
				c.early = !c.upload.HasRead()
				c.upload.Answered()
			}
			c.body.ResetAnswer(&u.Reader, c.Answer.Length)
			return nil
		case c.Answer.Status == http.StatusContinue:
			if c.isHeld() {
				c.Continue()
				c.startUpload(u)
			}
		case c.Inform != nil:
			c.Inform(&c.Answer)
		}
	}
}

// isHeld reports whether the body waits for the upstream's 100.
func (c *Call) isHeld() bool { return c.Continue != nil && c.Body != nil && c.upload == nil }

// HasBody reports whether the body of the request has come in whole, or there was none. It is for
// calls that were answered.
func (c *Call) HasBody() bool { return c.Body == nil || c.upload != nil && c.upload.HasRead() }

// Conn returns the connection of a call that was answered with a 101. End ends its use.
func (c *Call) Conn() *upstream.Conn { return c.conn }

// drop closes the connection. failure counts against its address; nil: nothing does.
func (c *Call) drop(failure error) {
	c.forget()
	c.conn.Drop(failure)
	c.conn, c.forget = nil, nil
}

// End ends the call. The connection is kept for another one if the answer was read to its end. The
// Call must not be used afterwards.
func (c *Call) End() {
	c.EndUpload()
	if u := c.conn; u != nil {
		// If the context has ended, another goroutine closes the connection, now or in a moment.
		mine := c.forget()
		c.conn, c.forget = nil, nil
		if mine && c.body.Done() && c.sent && !c.Alone && !c.early && !c.Answer.Close && c.Answer.Status != http.StatusSwitchingProtocols {
			u.Keep(time.Now())
		} else {
			u.Drop(nil)
		}
	}
	request, answer, heads := c.Request[:0], &c.Answer, c.heads
	if cap(request) > maxKept {
		request = nil
	}
	answer.Reset()
	heads.Reset(maxKept)
	*c = Call{Request: request, Answer: *answer, heads: heads}
	calls.Put(c)
}
