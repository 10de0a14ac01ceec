package fast

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/upstream"
	"github.com/weirlimit/weir/internal/wire"
)

// relay passes the answer on, after its head has come.
func (x *exchange) relay() {
	if x.res.Status == http.StatusSwitchingProtocols {
		x.switchProtocols()
		return
	}
	x.takeFields()
	x.complete(x.res.Status)
	how := x.appendHead()
	x.Status = x.res.Status
	whole, err := x.relayBody(how)
	if err != nil {
		x.Aborted = true
		x.giveUp(nil)
		return
	}
	x.finishUpstream(whole)
}

// takeFields takes from the upstream's answer the fields that are meant for the client.
func (x *exchange) takeFields() {
	x.fields = x.fields[:0]
	named := len(x.res.Values("Connection")) > 0
	for _, f := range x.res.Fields {
		if rules.IsHop(f.Name) || wire.EqualFold(f.Name, "Content-Length") || named && x.res.Names(f.Name) {
			continue
		}
		x.fields = append(x.fields, answer.Field(f))
	}
}

// appendHead appends the answer's head, and returns how its body is sent.
func (x *exchange) appendHead() (how relay.Framing) {
	res := &x.res
	x.beginHead(res.Status, res.Reason)
	length := res.Length
	if length == 0 {
		length = res.Declared // of a HEAD or a 304, or 0
	}
	switch {
	case res.Status == http.StatusNoContent: // has no Content-Length (RFC 9110, section 8.6)
	case length >= 0:
		x.out = append(strconv.AppendInt(append(x.out, "Content-Length: "...), length, 10), "\r\n"...)
	case res.Length == 0: // there is no body, and no length is declared
	case x.head.Minor == 0:
		x.closes = true
	default:
		how = relay.Chunked
		x.out = append(x.out, "Transfer-Encoding: chunked\r\n"...)
		if announced := strings.Join(res.Values("Trailer"), ","); announced != "" {
			x.out = relay.AppendAnnounced(x.out, announced, x.dropsTrailer)
		}
	}
	if x.body.isUnasked() || x.upload != nil && !x.upload.HasRead() {
		x.closes = true // the rest of the request will not be read
	}
	x.appendConnection()
	x.out = append(x.out, "\r\n"...)
	return how
}

// dropsTrailer reports whether a trailer is one of the limiter's fields.
func (x *exchange) dropsTrailer(name string) bool {
	return x.c.engine.IsReserved(name) || x.limited && x.answer.Owns(name)
}

// relayBody writes the head and copies the body. whole is true if the body was read to its end, so
// that the upstream's connection can be used again.
func (x *exchange) relayBody(how relay.Framing) (whole bool, err error) {
	c, u, res := x.c, x.conn, &x.res
	body := &x.answerBody
	body.ResetAnswer(&u.Reader, res.Length)
	// in one write with the head
	if n := len(u.Reader.Buffered()); res.Length > 0 && n > 0 && n <= maxGathered {
		start := len(x.out)
		x.out = append(x.out, make([]byte, min(int64(n), res.Length))...)
		if n, err = io.ReadFull(body, x.out[start:]); err != nil {
			return false, err
		}
		x.Written = int64(n)
		x.reportBody(x.out[start:])
	} else if body.Done() {
		x.reportServed()
	}
	if !body.Done() {
		c.detach()
	}
	if _, err := c.Write(x.out); err != nil {
		return false, err
	}
	if body.Done() {
		return true, nil
	}
	n, received, sent := c.engine.copies.Copy(c, &awaited{body, u, res.Length, x}, how)
	x.Written += n
	if received != nil {
		x.logBroken(received)
		return false, received
	}
	if sent != nil || how == relay.Plain {
		return sent == nil, sent
	}
	_, err = c.Write(relay.AppendLastChunk(nil, body.Trailers(), func(name string) bool { return !x.dropsTrailer(name) }))
	return true, err
}

// awaited is the body of an upstream's answer, with a deadline for each read.
type awaited struct {
	*wire.Body
	from   *upstream.Conn
	length int64
	of     *exchange
}

func (b *awaited) Read(p []byte) (int, error) {
	if b.length > 0 {
		b.from.AwaitBody(time.Now())
	} else {
		b.from.AwaitPiece(time.Now())
	}
	n, err := b.Body.Read(p)
	b.of.reportBody(p[:n])
	return n, err
}

// logBroken logs that an answer broke off, unless the client had gone.
func (x *exchange) logBroken(err error) {
	if x.upload != nil && x.upload.Received() != nil {
		return // the client has gone, and the upstream's connection was closed for that
	}
	if !x.c.isGone() {
		x.c.engine.Log.Warn("the upstream's answer ended early", "method", x.head.Method, "upstream", x.conn.Address().String(), "error", err)
	}
}

// finishUpstream returns the connection to its pool, or closes it if it cannot be used again.
func (x *exchange) finishUpstream(whole bool) {
	_, _ = x.quiet() // an upstream that has answered needs no more of the request
	x.reportEnd()
	x.c.up.Store(nil)
	u := x.conn
	x.conn = nil
	if whole && x.sent && !x.alone && !x.early && !x.res.Close && !x.c.isGone() {
		x.over = x.now()
		u.Keep(x.over)
	} else {
		u.Drop(nil)
	}
}
