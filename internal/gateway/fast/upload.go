package fast

import (
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/upstream"
	"github.com/weirlimit/weir/internal/wire"
)

// An upload sends the body of a request while its answer is awaited.
type upload struct {
	done  chan struct{}
	read  atomic.Bool // the body has arrived, and its last piece is on its way
	sent  error       // why the body did not arrive here whole
	stuck error       // why it did not go out whole

	mu   sync.Mutex
	head bool // the answer's has come
}

// answered is called when the head of the answer has come, and is not waited for any more.
func (l *upload) answered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head = true
}

// startUpload sends 100 Continue to a client that waits for it, and starts to send the body. Only
// the connection's goroutine writes to the client, so that nothing is written in the middle of an
// answer.
func (x *exchange) startUpload(u *upstream.Conn) error {
	if err := x.body.ask(); err != nil {
		return err
	}
	l := &upload{done: make(chan struct{})}
	x.upload = l
	u.AwaitStream() // the time for an answer runs from the end of the request
	x.c.holdWatch()
	x.c.engine.serving.Go(func() {
		if !x.sendBody(u, l) {
			_ = u.Close() // ends the wait for an answer, after which the exchange asks why
		}
	})
	return nil
}

// sendBody sends the body of the request. It reports false if the answer need not be waited for any
// more.
func (x *exchange) sendBody(u *upstream.Conn, l *upload) bool {
	defer close(l.done)
	var over bool
	if l.sent, l.stuck, over = relay.Attempt(x.c.engine.Log, func() (received, stuck error) { return x.pass(u, l) }); over {
		return false
	}
	x.sent = l.stuck == nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.head {
		u.AwaitHead(time.Now())
	}
	if x.sent {
		x.c.releaseWatch()
	}
	return true
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
	if l.read.Load() { // what is left is one write
		last := time.NewTimer(relay.LastPiece)
		defer last.Stop()
		select {
		case <-l.done:
		case <-last.C:
		}
	}
	select {
	case <-l.done:
		return l.sent, l.stuck
	default:
	}
	x.c.interrupt()
	_ = x.conn.Close()
	<-l.done
	x.c.resume()
	x.sent, x.closes = false, true
	return nil, nil // its errors are what we have just caused
}

// pass copies the body of the request to the upstream.
func (x *exchange) pass(u *upstream.Conn, l *upload) (received, sent error) {
	how := relay.Plain
	if x.head.Length == wire.Chunked {
		how = relay.Chunked
	}
	_, received, sent = x.c.engine.copies.Copy(u, &uploaded{&x.body, l}, how)
	if received != nil || sent != nil || how == relay.Plain {
		return received, sent
	}
	announced := strings.Join(x.head.Values("Trailer"), ",")
	_, err := u.Write(relay.AppendLastChunk(nil, x.body.Trailers(), func(name string) bool { return rules.Names(announced, name) && !x.withholds(name) }))
	return nil, err
}

// uploaded is a request's body that records when it has come in whole.
type uploaded struct {
	*requestBody
	*upload
}

func (b *uploaded) Read(p []byte) (int, error) {
	n, err := b.requestBody.Read(p)
	if errors.Is(err, io.EOF) {
		b.upload.read.Store(true)
	}
	return n, err
}
