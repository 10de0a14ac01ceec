package gateway

import (
	"errors"
	"io"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/upstream"
	"github.com/weirlimit/weir/internal/wire"
)

// An upload sends the body of a request while its answer is awaited.
type upload struct {
	done  chan struct{}
	read  atomic.Bool // the body has arrived, and its last piece is on its way
	sent  error       // why the body did not arrive whole here
	stuck error       // why it did not go out

	mu   sync.Mutex
	head bool // the answer's is there
}

// answered says that the head of the answer is there, and so is not waited for any more.
func (l *upload) answered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head = true
}

// startUpload asks for the body, where the client waits for that, and has it sent. Only the connection's goroutine writes to the
// client, so that nothing comes in the middle of an answer.
func (x *fastExchange) startUpload(u *upstream.Conn) error {
	if err := x.body.ask(); err != nil {
		return err
	}
	l := &upload{done: make(chan struct{})}
	x.upload = l
	u.AwaitStream() // the time for an answer runs from the end of the request
	x.c.engine.serving.Go(func() {
		if !x.sendBody(u, l) {
			_ = u.Close() // ends the wait for an answer, which must find out why
		}
	})
	return nil
}

var errPanicked = errors.New("sending the body panicked")

// sendBody sends the body of the request. It reports false where there is nothing more to wait for.
func (x *fastExchange) sendBody(u *upstream.Conn, l *upload) bool {
	defer close(l.done)
	defer func() {
		if failure := recover(); failure != nil {
			x.c.engine.log.Error("sending a request's body panicked", "panic", failure, "stack", string(debug.Stack()))
			l.stuck = errPanicked
		}
	}()
	if l.sent, l.stuck = x.pass(u, l); l.sent != nil || isTimeout(l.stuck) {
		return false
	}
	x.sent = l.stuck == nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.head {
		u.AwaitHead(time.Now())
	}
	if x.sent {
		x.c.beginWatch()
	}
	return true
}

// endUpload waits for the upload to end, and ends it where it goes on.
func (x *fastExchange) endUpload() (sent, stuck error) {
	l := x.upload
	x.upload = nil
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
		return l.sent, l.stuck
	default:
	}
	x.c.interrupt()
	_ = x.conn.Close()
	<-l.done
	x.c.resume()
	x.sent, x.closes = false, true
	return nil, nil // whatever it met was us
}

// lastPiece is how long an upstream that has answered may take to read the last of a request.
const lastPiece = 100 * time.Millisecond

// pass copies the body of the request to the upstream.
func (x *fastExchange) pass(u *upstream.Conn, l *upload) (received, sent error) {
	chunked := x.head.Length == wire.Chunked
	p := x.c.engine.copies.borrow()
	defer func() { p.giveBack() }()
	for {
		n, err := x.body.Read(p.room())
		if errors.Is(err, io.EOF) {
			l.read.Store(true)
		}
		if n > 0 {
			if _, err := u.Write(p.piece(n, chunked)); err != nil {
				return nil, err
			}
			p = p.after(n)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err, nil
		}
	}
	if !chunked {
		return nil, nil
	}
	announced := strings.Join(x.head.Values("Trailer"), ",")
	end := append(p.all[:0], "0\r\n"...)
	for _, f := range x.body.Trailers() {
		if listed(announced, f.Name) && !isForgedSpelling(f.Name) {
			end = wire.AppendField(end, f.Name, f.Value)
		}
	}
	_, err := u.Write(append(end, "\r\n"...))
	return nil, err
}
