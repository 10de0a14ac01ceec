package relay

import (
	"errors"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/upstream"
	"github.com/weirlimit/weir/internal/wire"
)

// An upload sends the body of a request while its answer is awaited.
type upload struct {
	done     chan struct{}
	read     atomic.Bool // the body has arrived, and its last piece is on its way
	whole    atomic.Bool // it went out whole; its end may still be awaited
	received error       // why the body did not arrive here whole; valid after done
	stuck    error       // why it did not go out whole; valid after done

	mu   sync.Mutex
	head bool // the answer's has come
}

// answered is called when the head of the answer has come, and is not waited for any more.
func (l *upload) answered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head = true
}

// startUpload starts to send the body on u.
func (c *Call) startUpload(u *upstream.Conn) {
	l := &upload{done: make(chan struct{})}
	c.upload = l
	u.AwaitStream() // the time for an answer runs from the end of the request
	go func() {
		if !c.sendBody(u, l) {
			close(l.done) // first: Do asks why as soon as its wait ends
			_ = u.Close()
			return
		}
		defer close(l.done)
		if l.stuck == nil {
			l.whole.Store(true)
			c.readEnd()
		}
	}()
}

var errPanicked = errors.New("sending the body panicked")

// sendBody sends the body. It reports false if the answer need not be waited for any more.
func (c *Call) sendBody(u *upstream.Conn, l *upload) bool {
	var over bool
	if l.received, l.stuck, over = Attempt(c.Log, func() (received, stuck error) { return c.copyBody(u, l) }); over {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.head {
		u.AwaitHead(time.Now())
	}
	return true
}

// Attempt calls send, which sends a body, and returns why it did not arrive here whole and why it
// did not go out whole. If send panics, that is logged. The answer is not worth waiting for if over
// is true.
func Attempt(log *slog.Logger, send func() (received, stuck error)) (received, stuck error, over bool) {
	stuck = errPanicked
	defer func() {
		if failure := recover(); failure != nil {
			log.Error("sending a request's body panicked", "panic", failure, "stack", string(debug.Stack()))
		}
		over = received != nil || pace.IsTimeout(stuck) || errors.Is(stuck, errPanicked)
	}()
	received, stuck = send()
	return received, stuck, false
}

// copyBody copies the body to the upstream. It returns the error of either side.
func (c *Call) copyBody(u *upstream.Conn, l *upload) (received, sent error) {
	_, received, sent = c.Buffers.Copy(u, &uploaded{c.Body, l, c.Length}, c.How)
	if received != nil || sent != nil || c.How == Plain {
		return received, sent
	}
	var trailers []wire.Field
	if c.Trailers != nil {
		trailers = c.Trailers()
	}
	_, sent = u.Write(AppendLastChunk(nil, trailers, func(string) bool { return true }))
	return nil, sent
}

// readEnd reads the end of a body of known length. HTTP/2 may send it apart from the last byte, and
// a server that has not read it resets the stream, after which some clients drop the answer.
func (c *Call) readEnd() {
	if c.Length > 0 {
		var end [1]byte
		_, _ = c.Body.Read(end[:]) // the request went out whole, whatever comes
	}
}

// uploaded is a request's body that records when it has come in whole. One of known length ends
// with its last byte.
type uploaded struct {
	io.Reader
	*upload
	left int64 // of a known length; 0: the length is not known
}

// Read is io.Reader's.
func (b *uploaded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left > 0 {
		if b.left -= int64(n); b.left <= 0 && err == nil {
			err = io.EOF
		}
	}
	if errors.Is(err, io.EOF) {
		b.upload.read.Store(true)
	}
	return n, err
}

// LastPiece is how long an upstream that has answered may take to read the last of a request.
const LastPiece = 100 * time.Millisecond

// EndUpload has nothing more of the request sent. An upstream that has answered needs no more of
// it.
func (c *Call) EndUpload() { _, _ = c.endUpload() }

// endUpload ends the upload, if there is one. It returns why the body did not arrive whole, and why
// it did not go out whole.
func (c *Call) endUpload() (received, stuck error) {
	l := c.upload
	if l == nil {
		return nil, nil
	}
	c.upload = nil
	if l.read.Load() { // what is left is one write, and the end
		last := time.NewTimer(LastPiece)
		defer last.Stop()
		select {
		case <-l.done:
		case <-last.C:
		}
	}
	select {
	case <-l.done:
		c.sent = l.received == nil && l.stuck == nil
		return l.received, l.stuck
	default:
	}
	whole := l.whole.Load()
	if !whole {
		_ = c.conn.Close()
	}
	_ = c.Body.Close()
	<-l.done
	c.sent = whole
	return nil, nil // its errors are what we have just caused
}
