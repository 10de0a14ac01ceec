package fast

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/weirlimit/weir/internal/upstream"
	"github.com/weirlimit/weir/internal/wire"
)

// relayed is the part of an exchange that is with the upstream.
type relayed struct {
	conn      *upstream.Conn
	begun     bool // some of the request went out
	sent      bool // the request went out whole
	websocket bool // is asked for
	tunnelled bool
	alone     bool    // the connection ends with this request
	early     bool    // the answer came before the request's body had come in whole
	upload    *upload // nil: the request went out in one piece
	heads     int     // bytes of heads, interim ones included
}

// forward passes the request on and its answer back.
func (x *fastExchange) forward() {
	x.reached = true
	if limit := x.body.most; limit > 0 && x.head.Length > limit {
		f := bodyTooLarge(limit)
		x.fail(&f)
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
	err = x.converse(streams)
	switch {
	case err == nil:
		x.relay()
	case x.c.isGone():
		x.gone = true
		x.giveUp(nil)
	default:
		x.upstreamFailed(err)
	}
}

// gathered is the largest body that is awaited whole before the upstream hears of the request: then one write is all.
const gathered = 16 << 10

// gather reads a small body whole. streams says that the body is not one, and is passed on as it comes.
func (x *fastExchange) gather() (streams bool, err error) {
	length := x.head.Length
	switch {
	case length == 0:
		return false, nil
	case length < 0, length > gathered, x.body.expects && x.body.taken == 0:
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

// bodyFailed answers a request whose body did not arrive whole.
func (x *fastExchange) bodyFailed(err error) {
	var large *http.MaxBytesError
	var refusal *wire.Refusal
	switch {
	case errors.As(err, &large):
		f := bodyTooLarge(large.Limit)
		x.fail(&f)
	case isTimeout(err):
		x.closes = true
		x.fail(&bodySlow)
	case errors.As(err, &refusal):
		x.closes = true
		x.fail(&bodyBroken)
	case errors.Is(err, io.ErrUnexpectedEOF): // it has left, most likely; if it has ended its half alone it still listens
		x.closes = true
		x.fail(&bodyBroken)
		x.gone = true
	default: // the client went away in the middle of it
		x.gone = true
	}
}

// appendRequest appends the head that the upstream receives: the target that was counted, the fields that are meant for it, and
// what it is told of the client.
func (x *fastExchange) appendRequest(b []byte) []byte {
	head := &x.head
	b = append(append(append(b, head.Method...), ' '), x.onward...)
	b = wire.AppendField(append(b, " HTTP/1.1\r\n"...), "Host", x.c.engine.hostFor(head.Host))
	named := x.namesMore()
	var announced string
	trailers := false
	for i := range head.Fields {
		f := &head.Fields[i]
		if !trailers && wire.EqualFold(f.Name, "Te") && listed(f.Value, "trailers") {
			b, trailers = append(b, "Te: trailers\r\n"...), true
		}
		if wire.EqualFold(f.Name, "Trailer") {
			announced += f.Value + ","
		}
		if isHop(f.Name) || isFraming(f.Name) || isWithheld(f.Name) || named && head.Names(f.Name) {
			continue
		}
		b = wire.AppendField(b, f.Name, f.Value)
	}
	proto := x.c.engine.forwardedProto(head.Values(forwardedProto), x.c.peer, x.c.engine.secure != nil)
	b = append(x.caller.AppendChain(append(b, forwardedFor+": "...)), "\r\n"...)
	b = wire.AppendField(b, forwardedProto, proto)
	if head.Host != "" {
		b = wire.AppendField(b, forwardedHost, head.Host)
	}
	if upgrade := head.Values("Upgrade"); upgrade != nil && head.Minor == 1 && head.Length == 0 && head.Names("Upgrade") && isWebsocket(head.Method, upgrade) {
		x.websocket = true
		b = wire.AppendField(append(b, "Connection: Upgrade\r\n"...), "Upgrade", upgrade[0])
	}
	switch {
	case head.Length == wire.Chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		if announced != "" {
			b = appendAnnounced(b, announced, isWithheld)
		}
	case head.Length > 0 || expectsBody(head.Method):
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), head.Length, 10), "\r\n"...)
	}
	if x.body.expects {
		b = append(b, "Expect: 100-continue\r\n"...)
	}
	if x.alone = travelsAlone(head.Method, head.Length); x.alone {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, "\r\n"...)
}

// namesMore reports whether Connection names anything but what every connection may be told.
func (x *fastExchange) namesMore() bool {
	for i := range x.head.Fields {
		f := &x.head.Fields[i]
		if wire.EqualFold(f.Name, "Connection") &&
			!strings.EqualFold(f.Value, "keep-alive") && !strings.EqualFold(f.Value, "close") {
			return true
		}
	}
	return false
}

// isHop reports whether a field belongs to one hop alone (RFC 9110, section 7.6.1; RFC 2616, section 13.5.1).
func isHop(name string) bool {
	switch len(name) {
	case 2:
		return strings.EqualFold(name, "Te")
	case 7:
		return strings.EqualFold(name, "Trailer") || strings.EqualFold(name, "Upgrade")
	case 10:
		return strings.EqualFold(name, "Connection") || strings.EqualFold(name, "Keep-Alive")
	case 16:
		return strings.EqualFold(name, "Proxy-Connection")
	case 17:
		return strings.EqualFold(name, "Transfer-Encoding")
	case 18:
		return strings.EqualFold(name, "Proxy-Authenticate")
	case 19:
		return strings.EqualFold(name, "Proxy-Authorization")
	}
	return false
}

// isFraming reports whether a request's field is written anew, from what was understood.
func isFraming(name string) bool {
	switch len(name) {
	case 4:
		return strings.EqualFold(name, "Host")
	case 6:
		return strings.EqualFold(name, "Expect")
	case 14:
		return strings.EqualFold(name, "Content-Length")
	}
	return false
}

// appendAnnounced appends a Trailer field without the names that will not be passed on.
func appendAnnounced(b []byte, list string, drops func(string) bool) []byte {
	begun := false
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.Trim(name, " \t"); !wire.IsToken(name) || drops(name) {
			continue
		}
		if b = append(b, ", "...); !begun {
			b = append(b[:len(b)-2], "Trailer: "...)
		}
		b, begun = append(b, name...), true
	}
	if begun {
		b = append(b, "\r\n"...)
	}
	return b
}

// converse sends the request and reads the head of its answer. A connection that was kept may have been closed by the other side
// just now: a request of which not a byte was tried goes to another then, and so does one that may be repeated and of which not a byte
// went out. One that went out may have been read, whatever became of the answer, and was counted once.
func (x *fastExchange) converse(streams bool) error {
	c := x.c
	now := x.start
	if x.head.Length != 0 || c.engine.tick.Load() != x.tick {
		now = time.Now() // the body, or the limiter's store, may have been awaited
	}
	for want := (upstream.Want{Now: now, Ask: !streams}); ; {
		u, err := c.engine.pool.Take(&c.ctx, want)
		if err != nil {
			return err
		}
		x.conn = u
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
		if c.isGone() || !stale && !x.mayGoElsewhere(u, err) {
			return err
		}
		x.giveUp(nil) // kept connections end: nothing is wrong with the address
		want.Fresh = !stale
	}
}

// mayGoElsewhere reports whether a request whose exchange on u has failed may be sent on another connection.
func (x *fastExchange) mayGoElsewhere(u *upstream.Conn, err error) bool {
	return u.Reused() && !x.begun && x.head.Length == 0 && isIdempotent(x.head.Method) && !isTimeout(err)
}

var errGone = errors.New("the client went away")

// An uploadError says why the body of a request did not arrive whole here. The upstream is not to blame.
type uploadError struct{ error }

func isIdempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// talk sends the request on u, now, and reads the head of the answer.
func (x *fastExchange) talk(u *upstream.Conn, streams bool, now time.Time) error {
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
		x.c.beginWatch()
	}
	for {
		err := x.hear(u)
		if !streams {
			x.begun, x.sent = u.Asked() > 0, u.Asked() == len(x.out)
		}
		if err != nil && isTimeout(err) && streams && x.upload == nil {
			err = x.startUpload(u) // the upstream does not say whether it wants the body
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
				x.early = !x.upload.read.Load()
				x.upload.answered()
			} else if streams { // the body will never be asked for
				x.c.beginWatch()
			}
			return nil
		case x.head.Minor == 1:
			x.inform()
		}
	}
}

// mostAnswerHead is the largest head of an answer, with the interim ones before it: they are not heard for ever.
const mostAnswerHead = 256 << 10

// hear reads one head.
func (x *fastExchange) hear(u *upstream.Conn) error {
	for {
		if x.heard = u.Reader.AppendResponseHead(x.heard[:0]); len(x.heard) > 0 {
			if x.heads += len(x.heard); x.heads > mostAnswerHead {
				return errManyHeads
			}
			var refusal *wire.Refusal
			err := x.res.Parse(unsafe.String(&x.heard[0], len(x.heard)), x.head.Method)
			if errors.As(err, &refusal) {
				return answerError{refusal}
			}
			return err
		}
		switch err := u.Reader.Fill(mostAnswerHead); {
		case err == nil:
		case errors.Is(err, io.EOF):
			return errNoAnswer
		case errors.Is(err, wire.ErrFull):
			return errLongHead
		default:
			return err
		}
	}
}

var (
	errNoAnswer  = errors.New("the connection ended before an answer came")
	errManyHeads = answerError{&wire.Refusal{Status: http.StatusBadGateway, Reason: "more interim answers than are allowed"}}
	errLongHead  = answerError{&wire.Refusal{Status: http.StatusBadGateway, Reason: "a head of more than 256 KiB"}}
)

// An answerError says what is wrong with an upstream's answer.
type answerError struct{ *wire.Refusal }

func (e answerError) Error() string { return "its answer is none that HTTP/1.1 allows: " + e.Reason }
func (e answerError) Unwrap() error { return e.Refusal }

// inform passes an informational answer on, without what only a final one can say of the limit.
func (x *fastExchange) inform() {
	b := wire.AppendStatus(nil, x.res.Status, x.res.Reason)
	for _, f := range x.res.Fields {
		if !isHop(f.Name) && !isFraming(f.Name) && !x.res.Names(f.Name) && !x.answer.Owns(f.Name) {
			b = wire.AppendField(b, f.Name, f.Value)
		}
	}
	_, _ = x.c.Write(append(b, "\r\n"...)) // the final one meets the error again
}

// upstreamFailed answers for an upstream that did not.
func (x *fastExchange) upstreamFailed(err error) {
	at := x.c.engine.options.Upstream.Host
	if x.conn != nil {
		at = x.conn.Address().Host
	}
	var broke *uploadError
	if errors.As(err, &broke) {
		x.giveUp(nil)
		x.bodyFailed(broke.error)
		return
	}
	x.giveUp(err)
	x.fail(x.c.engine.noUpstream(x.head.Method, at, err))
}

// giveUp ends the use of the upstream's connection. failure counts against its address.
func (x *fastExchange) giveUp(failure error) {
	_, _ = x.quiet()
	if x.conn != nil {
		x.c.up.Store(nil)
		x.conn.Drop(failure)
		x.conn = nil
	}
}
