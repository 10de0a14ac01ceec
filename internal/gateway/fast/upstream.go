package fast

import (
	"errors"
	"io"
	"net/http"
	"time"
	"unsafe"

	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/upstream"
	"github.com/weirlimit/weir/internal/wire"
)

// relayed is an exchange's part with the upstream.
type relayed struct {
	conn      *upstream.Conn
	begun     bool // some of the request went out
	sent      bool // the request went out whole
	websocket bool // the request asks for one
	tunnelled bool
	alone     bool          // the connection ends with this request
	early     bool          // the answer came before the request's body had come in whole
	upload    *relay.Upload // nil: the body is not being sent
}

// forward sends the request to the upstream, and its answer back.
func (x *exchange) forward() {
	x.Reached = true
	if limit := x.body.max; limit > 0 && x.head.Length > limit {
		x.reply(rules.BodyTooLarge(limit))
		return
	}
	streams, err := x.gather()
	if err != nil {
		x.bodyFailed(err)
		return
	}
	x.out = x.appendRequest(x.out[:0])
	if !streams && x.head.Length > 0 {
		x.out = append(x.out, x.body.seen[x.body.seenAt:]...)
		x.body.seenAt = len(x.body.seen)
	}
	asked := time.Since(x.Start)
	err = x.converse(streams)
	x.UpstreamTime = time.Since(x.Start) - asked
	switch {
	case err == nil:
		x.relay()
	case x.c.isGone():
		x.Gone = true
		x.giveUp(nil)
	default:
		x.upstreamFailed(err)
	}
}

// maxGathered is the size of the largest body that is awaited whole before the request is sent, so
// that it is sent in one write.
const maxGathered = 16 << 10

// gather reads a small body whole. streams is true if the body is not small, and is to be passed on
// as it comes.
func (x *exchange) gather() (streams bool, err error) {
	length := x.head.Length
	switch {
	case length == 0:
		return false, nil
	case length < 0, length > maxGathered, x.body.expects && x.body.taken == 0:
		return true, nil
	}
	x.body.look(int(length))
	if x.body.err != nil && !errors.Is(x.body.err, io.EOF) {
		return false, x.body.err
	}
	if int64(len(x.body.seen)) < length {
		return false, io.ErrUnexpectedEOF
	}
	return false, nil
}

// bodyFailed answers a request whose body did not arrive whole. A client that has closed its
// connection gets no answer; one that has ended its half in the middle of the body may still read
// one.
func (x *exchange) bodyFailed(err error) {
	var large *http.MaxBytesError
	var refusal *wire.Refusal
	ended := errors.Is(err, io.ErrUnexpectedEOF)
	if ended || errors.As(err, &large) || pace.IsTimeout(err) || errors.As(err, &refusal) {
		x.reply(rules.BodyFailed(err))
		x.Gone = x.Gone || ended
		return
	}
	x.Gone = true
}

// converse sends the request and reads the head of its answer. The upstream may close a kept
// connection at any moment, and a new one as soon as it is made. A request goes to another
// connection then if no byte of it went out, whatever its method: the upstream cannot have read it.
// A request of which a byte went out may have been read, even without an answer, and was counted
// once; it is not sent again.
func (x *exchange) converse(streams bool) error {
	c := x.c
	now := x.Start
	if x.head.Length != 0 || c.engine.tick.Load() != x.tick {
		now = time.Now() // the body, or the limiter's store, may have been awaited
	}
	if streams {
		c.detach()
	}
	for want := (upstream.Want{Now: now, Ask: !streams}); ; {
		if !streams {
			c.beginWatch() // until the answer; connecting may take long too
		}
		want.Task = c.turns()
		u, err := x.Site.Pool.Take(&c.ctx, want)
		if err != nil {
			return err
		}
		x.conn, x.Upstream = u, u.Address()
		c.up.Store(u)
		if c.isGone() {
			return errGone
		}
		if !u.Reused() {
			now = time.Now() // connecting took a while
		}
		err = x.talk(u, streams, now)
		if err == nil {
			return nil
		}
		sent, stuck := x.quiet()
		switch {
		case sent != nil:
			err = &uploadError{sent}
		case stuck != nil:
			err = stuck
		}
		stale := errors.Is(err, upstream.ErrStale)
		if c.isGone() || !stale && !x.mayRetry(err) {
			return err
		}
		if u.Reused() {
			x.giveUp(nil) // a kept connection that ends does not count against its address
			want.Fresh = !stale
			continue
		}
		want = u.Else(want, err)
		x.giveUp(err)
	}
}

// mayRetry reports whether a request whose exchange has failed may be sent on another connection. A
// time-out is not retried: the client has waited enough.
func (x *exchange) mayRetry(err error) bool { return !x.begun && !pace.IsTimeout(err) }

var errGone = errors.New("the client went away")

// An uploadError is why the body of a request did not arrive here whole. It does not count against
// the upstream.
type uploadError struct{ error }

// talk sends the request on u, now, and reads the head of the answer.
func (x *exchange) talk(u *upstream.Conn, streams bool, now time.Time) error {
	if streams {
		n, err := u.Write(x.out)
		x.begun = x.begun || n > 0
		if err != nil {
			return err
		}
	}
	switch {
	case streams && x.body.expects:
		u.AwaitContinue(now)
	case streams:
		if err := x.startUpload(u); err != nil {
			return err
		}
	default:
		u.Ask(x.out)
		u.AwaitHead(now)
	}
	for {
		err := x.readHead(u)
		if !streams {
			x.begun, x.sent = u.Asked() > 0, u.Asked() == len(x.out)
		}
		if err != nil && pace.IsTimeout(err) && streams && x.upload == nil {
			err = x.startUpload(u) // the upstream does not answer Expect
			if err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		u.Answered()
		switch status := x.res.Status; {
		case status == http.StatusContinue:
			if streams && x.upload == nil {
				if err := x.startUpload(u); err != nil {
					return err
				}
			}
		case status == http.StatusSwitchingProtocols || status >= 200:
			if x.upload != nil {
				x.early = !x.upload.HasRead()
				x.upload.Answered()
			} else if streams { // the upstream does not want the body
				x.c.beginWatch()
			}
			return nil
		case x.head.Minor == 1:
			x.inform()
		}
	}
}

// readHead reads one head.
func (x *exchange) readHead(u *upstream.Conn) error {
	head, err := x.heads.Next(u)
	if err != nil {
		return err
	}
	// nothing keeps a part of it for longer than the exchange
	return relay.Parse(&x.res, unsafe.String(&head[0], len(head)), x.head.Method)
}

// inform passes an informational answer on, without the limiter's fields, which only a final answer
// has.
func (x *exchange) inform() {
	x.c.detach()
	b := wire.AppendStatus(nil, x.res.Status, x.res.Reason)
	for _, f := range x.res.Fields {
		if !rules.IsHop(f.Name) && !rules.IsFraming(f.Name) && !x.res.Names(f.Name) && !x.answer.Owns(f.Name) {
			b = wire.AppendField(b, f.Name, f.Value)
		}
	}
	_, _ = x.c.Write(append(b, "\r\n"...)) // the write of the final one will fail too
}

// upstreamFailed answers for an upstream that did not.
func (x *exchange) upstreamFailed(err error) {
	var at upstream.Address
	if x.conn != nil {
		at = x.conn.Address()
	}
	var broke *uploadError
	if errors.As(err, &broke) {
		x.giveUp(nil)
		x.bodyFailed(broke.error)
		return
	}
	x.giveUp(err)
	x.reply(x.c.engine.NoUpstream(x.Site, x.head.Method, at, err))
}

// giveUp closes the upstream's connection. failure counts against its address; nil: nothing does.
func (x *exchange) giveUp(failure error) {
	_, _ = x.quiet()
	if x.conn != nil {
		x.c.up.Store(nil)
		x.conn.Drop(failure)
		x.conn = nil
	}
}
