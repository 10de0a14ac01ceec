package fast

import (
	"strings"

	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/upstream"
	"github.com/weirlimit/weir/internal/wire"
)

// startUpload sends 100 Continue to a client that waits for it, and starts to send the body. Only
// the connection's goroutine writes to the client, so that nothing is written in the middle of an
// answer.
func (x *exchange) startUpload(u *upstream.Conn) error {
	if err := x.body.ask(); err != nil {
		return err
	}
	l := relay.NewUpload()
	x.upload = l
	u.AwaitStream() // the time for an answer runs from the end of the request
	x.c.holdWatch()
	x.c.engine.serving.Go(func() {
		l.Run(u, x.c.engine.Log, func() (received, stuck error) { return x.pass(u, l) }, func() {
			x.sent = true
			x.c.releaseWatch()
		})
	})
	return nil
}

// quiet ends every other goroutine that reads from the client: the upload first, then the watch. It
// returns why the body did not arrive whole, and why it did not go out whole.
func (x *exchange) quiet() (sent, stuck error) {
	if x.upload != nil {
		sent, stuck = x.endUpload()
	}
	x.c.endWatch()
	return sent, stuck
}

// endUpload ends the upload. Only quiet calls it.
func (x *exchange) endUpload() (sent, stuck error) {
	l := x.upload
	x.upload = nil
	sent, stuck, cut := l.End(func() {
		x.c.interrupt()
		_ = x.conn.Close()
	})
	if cut {
		x.c.resume()
		x.sent, x.closes = false, true
	}
	return sent, stuck
}

// pass copies the body of the request to the upstream.
func (x *exchange) pass(u *upstream.Conn, l *relay.Upload) (received, sent error) {
	how := relay.Plain
	if x.head.Length == wire.Chunked {
		how = relay.Chunked
	}
	_, received, sent = x.c.engine.copies.Copy(u, l.Reader(&x.body, 0), how)
	if received != nil || sent != nil || how == relay.Plain {
		return received, sent
	}
	announced := strings.Join(x.head.Values("Trailer"), ",")
	_, err := u.Write(relay.AppendLastChunk(nil, x.body.Trailers(), func(name string) bool { return rules.Names(announced, name) && !x.withholds(name) }))
	return nil, err
}
