package gateway

import (
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/internal/upstream"
	"github.com/weirlimit/weir/internal/wire"
)

// relay passes the answer on, whose head is there.
func (x *fastExchange) relay() {
	if x.res.Status == http.StatusSwitchingProtocols {
		x.switchProtocols()
		return
	}
	x.takeFields()
	x.complete(x.res.Status)
	chunked := x.appendHead()
	x.status = x.res.Status
	whole, err := x.relayBody(chunked)
	if err != nil {
		x.aborted = true
		x.giveUp(nil)
		return
	}
	x.finishUpstream(whole)
}

// takeFields makes the fields of the answer those that the upstream means for the client.
func (x *fastExchange) takeFields() {
	x.fields = x.fields[:0]
	named := len(x.res.Values("Connection")) > 0
	for _, f := range x.res.Fields {
		if isHop(f.Name) || len(f.Name) == len("Content-Length") && strings.EqualFold(f.Name, "Content-Length") || named && x.res.Names(f.Name) {
			continue
		}
		x.fields = append(x.fields, httplimit.Field(f))
	}
}

// appendHead appends the answer's head. It reports whether the body is sent in chunks.
func (x *fastExchange) appendHead() (chunked bool) {
	res := &x.res
	x.out = wire.AppendStatus(x.out[:0], res.Status, res.Reason)
	for i := range x.fields {
		x.out = wire.AppendField(x.out, x.fields[i].Name, x.fields[i].Value)
	}
	length := res.Length
	if length == 0 {
		length = res.Declared // of a HEAD or a 304, or 0
	}
	switch {
	case res.Status == http.StatusNoContent: // says nothing of a length (RFC 9110, section 8.6)
	case length >= 0:
		x.out = append(strconv.AppendInt(append(x.out, "Content-Length: "...), length, 10), "\r\n"...)
	case res.Length == 0: // none, and nothing is said of one
	case x.head.Minor == 0:
		x.closes = true
	default:
		chunked = true
		x.out = append(x.out, "Transfer-Encoding: chunked\r\n"...)
		if announced := strings.Join(res.Values("Trailer"), ","); announced != "" {
			x.out = appendAnnounced(x.out, announced, x.dropsTrailer)
		}
	}
	if x.body.isUnasked() || x.upload != nil && !x.upload.read.Load() {
		x.closes = true // nobody will read the rest
	}
	x.appendConnection()
	x.out = append(x.out, "\r\n"...)
	return chunked
}

// dropsTrailer reports whether a trailer would say what only the limiter may.
func (x *fastExchange) dropsTrailer(name string) bool {
	return x.c.engine.isOurs(name) || x.limited && x.answer.Owns(name)
}

// relayBody writes the head and copies the body. whole says that the upstream's connection is where the next answer begins.
func (x *fastExchange) relayBody(chunked bool) (whole bool, err error) {
	c, u, res := x.c, x.conn, &x.res
	body := &x.answerBody
	body.ResetAnswer(&u.Reader, res.Length)
	if n := len(u.Reader.Buffered()); res.Length > 0 && n > 0 && n <= gathered { // in one write with the head
		start := len(x.out)
		x.out = append(x.out, make([]byte, min(int64(n), res.Length))...)
		if n, err = io.ReadFull(body, x.out[start:]); err != nil {
			return false, err
		}
		x.written = int64(n)
	}
	if _, err := c.Write(x.out); err != nil {
		return false, err
	}
	if body.Done() {
		return true, nil
	}
	p := c.engine.copies.borrow()
	defer func() { p.giveBack() }()
	for {
		if res.Length > 0 {
			u.AwaitBody(time.Now())
		} else {
			u.AwaitStream()
		}
		n, err := body.Read(p.room())
		if n > 0 {
			x.written += int64(n)
			if _, err := c.Write(p.piece(n, chunked)); err != nil {
				return false, err
			}
			p = p.after(n)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			x.tellBroken(err)
			return false, err
		}
	}
	if !chunked {
		return true, nil
	}
	end := append(p.all[:0], "0\r\n"...)
	for _, f := range body.Trailers() {
		if !x.dropsTrailer(f.Name) {
			end = wire.AppendField(end, f.Name, f.Value)
		}
	}
	_, err = c.Write(append(end, "\r\n"...))
	return true, err
}

// tellBroken says in the log that an answer broke off, unless the client had gone.
func (x *fastExchange) tellBroken(err error) {
	if x.upload != nil {
		select {
		case <-x.upload.done:
			if x.upload.sent != nil {
				return // the client has gone, and so the upstream was left
			}
		default:
		}
	}
	if !x.c.isGone() {
		x.c.engine.log.Warn("the upstream's answer broke off", "method", x.head.Method, "upstream", x.conn.Address().Host, "error", err)
	}
}

// finishUpstream gives the connection back, or closes it where it cannot be used again.
func (x *fastExchange) finishUpstream(whole bool) {
	if x.upload != nil {
		x.endUpload() // whoever has answered wants no more of the request
	}
	x.c.endWatch()
	x.c.up.Store(nil)
	u := x.conn
	x.conn = nil
	if whole && x.sent && !x.res.Close && !x.c.isGone() && !x.mayHaveBody() {
		x.over = time.Now()
		u.Keep(x.over)
	} else {
		u.Drop(nil)
	}
}

// mayHaveBody reports whether the upstream could still send what it announced to HEAD, as some do by mistake: the next request's answer
// would begin with it.
func (x *fastExchange) mayHaveBody() bool {
	return x.head.Method == http.MethodHead && (x.res.Declared > 0 || len(x.res.Values("Transfer-Encoding")) > 0)
}

// switchProtocols passes a 101 on, and then every byte, either way, until both sides have ended.
func (x *fastExchange) switchProtocols() {
	upgrade := x.res.Values("Upgrade")
	if !x.websocket || len(upgrade) != 1 || !strings.EqualFold(upgrade[0], "websocket") {
		x.upstreamFailed(errors.New("it switched to a protocol that nobody asked for"))
		return
	}
	x.takeFields()
	for i := 0; i < len(x.fields); {
		if x.c.engine.isOurs(x.fields[i].Name) {
			x.fields = append(x.fields[:i], x.fields[i+1:]...)
			continue
		}
		i++
	}
	x.complete(x.res.Status)
	x.closes = false
	x.out = wire.AppendStatus(x.out[:0], x.res.Status, x.res.Reason)
	for i := range x.fields {
		x.out = wire.AppendField(x.out, x.fields[i].Name, x.fields[i].Value)
	}
	x.out = append(x.out, "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"...)
	x.status = x.res.Status
	c, u := x.c, x.conn
	c.endWatch()
	x.tunnelled = true
	c.engine.conns.add(c.raw)
	c.engine.open.add(-1) // a drain does not wait for it, but closes it
	defer func() {
		c.engine.conns.remove(c.raw)
		c.engine.open.add(1) // end takes it away again
	}()
	if _, err := c.Write(x.out); err == nil {
		c.tunnel(u)
	}
	c.up.Store(nil)
	x.conn = nil
	u.Drop(nil)
}

// tunnel copies both ways until both have ended, or one has failed.
func (c *fastConn) tunnel(u *upstream.Conn) {
	c.moveDeadline(time.Time{})
	u.AwaitStream()
	var both sync.WaitGroup
	both.Go(func() {
		defer func() {
			if failure := recover(); failure != nil {
				c.engine.log.Error("copying for a websocket panicked", "panic", failure, "stack", string(debug.Stack()))
				_ = u.Close()
			}
		}()
		c.engine.copies.oneWay(u, &c.in, u, c)
	})
	c.engine.copies.oneWay(c.Conn, &u.Reader, c, u)
	both.Wait()
}

// oneWay copies until from ends, which it passes on, or fails, which ends both ways.
func (b *copyBuffers) oneWay(to io.Writer, from io.Reader, toConn, fromConn interface{ Close() error }) {
	p := b.borrow()
	defer func() { p.giveBack() }()
	for {
		n, err := from.Read(p.room())
		if n > 0 {
			if _, err := to.Write(p.piece(n, false)); err != nil {
				break
			}
			p = p.after(n)
		}
		if errors.Is(err, io.EOF) {
			if half, ok := toConn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
				return
			}
			break
		}
		if err != nil {
			break
		}
	}
	_ = toConn.Close()
	_ = fromConn.Close()
}
