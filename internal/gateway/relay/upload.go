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

// An Upload sends the body of a request while its answer is awaited. Make one with NewUpload, and
// have a goroutine call Run. One other goroutine may call the other methods meanwhile.
type Upload struct {
	done     chan struct{}
	read     atomic.Bool // the body has arrived, and its last piece is on its way
	received error       // why the body did not arrive here whole; valid after done
	stuck    error       // why it did not go out whole; valid after done

	mu   sync.Mutex
	head bool // the answer's has come
}

// NewUpload returns an Upload that has not begun.
func NewUpload() *Upload { return &Upload{done: make(chan struct{})} }

var errPanicked = errors.New("sending the body panicked")

// Run calls send, which sends the body on u. It reads the body by Reader, and returns why the body
// did not arrive here whole, and why it did not go out whole. If it panics, that is logged. After a
// body that went out whole, Run calls sent, if that is not nil. It closes u if the answer need not
// be waited for any more.
func (l *Upload) Run(u *upstream.Conn, log *slog.Logger, send func() (received, stuck error), sent func()) {
	if l.attempt(log, send) {
		close(l.done) // first: the exchange asks why as soon as its wait ends
		_ = u.Close()
		return
	}
	defer close(l.done)
	l.awaitHead(u)
	if l.stuck == nil && sent != nil {
		sent()
	}
}

// attempt calls send. It reports whether the answer is not worth waiting for.
func (l *Upload) attempt(log *slog.Logger, send func() (received, stuck error)) (over bool) {
	l.stuck = errPanicked
	defer func() {
		if failure := recover(); failure != nil {
			log.Error("sending a request's body panicked", "panic", failure, "stack", string(debug.Stack()))
		}
		over = l.received != nil || pace.IsTimeout(l.stuck) || errors.Is(l.stuck, errPanicked)
	}()
	l.received, l.stuck = send()
	return false
}

// awaitHead starts the time for an answer, unless that has come.
func (l *Upload) awaitHead(u *upstream.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.head {
		u.AwaitHead(time.Now())
	}
}

// Answered is called when the head of the answer has come, and is not waited for any more.
func (l *Upload) Answered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head = true
}

// HasRead reports whether the body has arrived here whole.
func (l *Upload) HasRead() bool { return l.read.Load() }

// Received returns why the body did not arrive here whole, if the upload is over.
func (l *Upload) Received() error {
	select {
	case <-l.done:
		return l.received
	default:
		return nil
	}
}

// lastPiece is how long an upstream that has answered may take to read the last of a request.
const lastPiece = 100 * time.Millisecond

// End ends the upload. It returns why the body did not arrive here whole, and why it did not go out
// whole. If the body has arrived, End waits for its last piece for a moment. If the upload is not
// over then, stop is called, which must end the read or the write that it is in; cut is true, and
// what the upload failed with because of that is not returned.
func (l *Upload) End(stop func()) (received, stuck error, cut bool) {
	if l.read.Load() { // what is left is one write
		last := time.NewTimer(lastPiece)
		defer last.Stop()
		select {
		case <-l.done:
		case <-last.C:
		}
	}
	select {
	case <-l.done:
		return l.received, l.stuck, false
	default:
	}
	stop()
	<-l.done
	return nil, nil, true
}

// Reader returns the body, and notes when it has come in whole. A body of a known length ends with
// its last byte; a length of 0 is not known.
func (l *Upload) Reader(body io.Reader, length int64) io.Reader { return &uploaded{body, l, length} }

type uploaded struct {
	io.Reader
	of   *Upload
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
		b.of.read.Store(true)
	}
	return n, err
}

// startUpload starts to send the body on u.
func (c *Call) startUpload(u *upstream.Conn) {
	l := NewUpload()
	c.upload = l
	u.AwaitStream() // the time for an answer runs from the end of the request
	go l.Run(u, c.Log, func() (received, stuck error) { return c.copyBody(u, l) }, c.readEnd)
}

// copyBody copies the body to the upstream. It returns the error of either side.
func (c *Call) copyBody(u *upstream.Conn, l *Upload) (received, sent error) {
	_, received, sent = c.Buffers.Copy(u, l.Reader(c.Body, c.Length), c.How)
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
	c.whole.Store(true)
	if c.Length > 0 {
		var end [1]byte
		_, _ = c.Body.Read(end[:]) // the request went out whole, whatever comes
	}
}

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
	whole := false
	received, stuck, cut := l.End(func() {
		if whole = c.whole.Load(); !whole {
			_ = c.conn.Close()
		}
		_ = c.Body.Close()
	})
	c.sent = received == nil && stuck == nil && (whole || !cut)
	return received, stuck
}
