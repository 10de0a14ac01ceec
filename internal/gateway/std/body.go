package std

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// A requestBody lets a sender take its time but not stall or trickle: each read has a deadline.
type requestBody struct {
	io.ReadCloser
	deadline readDeadline
	limits   *pace.Limits
	http2    bool
	conn     *pace.Conn // nil: not known

	reading  sync.Mutex // held while the body is read: a proxy reads in a goroutine of its own
	mu       sync.Mutex // guards what follows
	pace     pace.Allowance
	by       time.Time // the deadline; zero: there is none
	finished bool
	closed   bool  // HTTP/2: the connection has been told that the body has ended
	err      error // what ended the body, but for its end
}

type readDeadline interface{ SetReadDeadline(time.Time) error }

// paceBody puts the body of r, if there is one, under deadlines. It returns a copy of r then: the server looks at its own
// Request.Body for what is left to discard, and whether the client still waits for 100 Continue.
func (x *exchange) paceBody(r *http.Request) *http.Request {
	deadline, ok := x.ResponseWriter.(readDeadline)
	if !ok || r.Body == nil || r.Body == http.NoBody {
		return r
	}
	b := &x.body
	b.ReadCloser, b.deadline, b.limits, b.http2 = r.Body, deadline, &x.engine.Pace, x.http2
	b.conn = pace.ConnOf(r.Context())
	b.pace.Begin(b.limits)
	if b.http2 && b.conn != nil {
		b.conn.Uploads.OpenBody()
	}
	if !b.http2 {
		// Also for a body that nobody reads: the server discards it, before the answer.
		b.arm(x.Start)
	}
	paced := new(http.Request)
	*paced = *r
	paced.Body = b
	x.request = paced
	return paced
}

// arm moves the deadline, unless it is near enough to what it should be.
func (b *requestBody) arm(now time.Time) {
	wait := b.pace.Next(b.limits)
	if b.http2 { // whether it is too slow is decided after the read, by the whole connection
		wait = b.pace.NextOfStream(b.limits)
	}
	if left := b.by.Sub(now); left < wait-wait/4 || left > wait {
		b.by = now.Add(wait)
		_ = b.deadline.SetReadDeadline(b.by)
	}
}

func (b *requestBody) disarm() {
	b.by = time.Time{}
	_ = b.deadline.SetReadDeadline(b.by)
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	b.mu.Lock()
	if b.finished {
		b.mu.Unlock()
		return 0, http.ErrBodyReadAfterClose
	}
	began := time.Now()
	b.arm(began)
	b.mu.Unlock()

	b.await(began)
	n, err := b.ReadCloser.Read(p)
	goesOn := b.endAwait(began, n, n < len(p))

	b.mu.Lock()
	defer b.mu.Unlock()
	if !goesOn && err == nil && !b.finished {
		err = pace.ErrTooSlow
		b.by = began
		_ = b.deadline.SetReadDeadline(b.by) // the server does not wait for the rest either
	}
	if err != nil && err != io.EOF {
		b.err = err
	}
	if err != nil {
		b.close()
	}
	// HTTP/2's deadline would break a stream between two reads; HTTP/1's would go on to watch the connection once the
	// body is read. After an error it stays, for the server, which would wait for the rest.
	if !b.finished && (err == io.EOF || b.http2) {
		b.disarm()
	}
	return n, err
}

// finish ends the deadlines' moving, with the last one in force for what the server still discards.
func (b *requestBody) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finished = true
	b.close()
}

// close tells an HTTP/2 connection once that the body has ended. b.mu is held.
func (b *requestBody) close() {
	if b.http2 && b.conn != nil && !b.closed {
		b.closed = true
		b.conn.Uploads.CloseBody(b.conn.Received())
	}
}

// await notes that a read begins.
func (b *requestBody) await(now time.Time) {
	switch {
	case !b.http2:
		b.conn.AwaitBody(&b.pace, b.limits, now)
	case b.conn != nil:
		b.conn.Uploads.Await(b.limits, now, b.conn.Received())
	}
}

// endAwait notes that a read is over, which began at that time and brought n bytes, and whether there were no more. It reports
// whether the client may go on.
func (b *requestBody) endAwait(began time.Time, n int, emptied bool) bool {
	if !b.http2 || b.conn == nil {
		return b.conn.EndAwait(&b.pace, b.limits, began, n)
	}
	now, total := time.Now(), b.conn.Received()
	shared := b.conn.Uploads.EndAwait(b.limits, now, total)
	b.conn.Uploads.Read(n, emptied, total)
	own := b.pace.Spend(b.limits, now.Sub(began), n)
	return own || shared && !b.pace.IsOver(b.limits)
}

// settle ends a body whose client will not be heard again, since the server closes the connection after this answer: what the client
// still sends is awaited for patience at most, and a read that is under way is waited for. The server would break such a read off and
// take the deadline away with that, so that what it then discards of the body would be awaited for ever. The body must be finished.
func (b *requestBody) settle(patience time.Duration) {
	b.mu.Lock()
	last := b.by
	if b.conn != nil {
		last = b.conn.ReadDeadline() // what arrives moves it
	}
	if by := time.Now().Add(patience); !b.by.IsZero() && by.Before(last) {
		_ = b.deadline.SetReadDeadline(by)
	}
	b.mu.Unlock()
	b.reading.Lock()
	defer b.reading.Unlock()
}

// isLeft reports whether some of an HTTP/1 body has not been read. (HTTP/2's server ends a stream by itself.)
func (b *requestBody) isLeft() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ReadCloser != nil && !b.http2 && !b.by.IsZero()
}

// isRead reports whether a goroutine is reading the body just now.
func (b *requestBody) isRead() bool {
	if !b.reading.TryLock() {
		return true
	}
	b.reading.Unlock()
	return false
}

// What an HTTP/2 client may still send after it was refused, and for how long that is awaited; and so with HTTP/1 where the body is
// not wanted any more.
const (
	maxDiscarded    = 256 << 10
	discardPatience = time.Second
)

// discard reads what is left of a body that was refused unread. Over HTTP/2 the server would reset the stream instead, and
// there are clients that then take the answer for lost (curl 7.88 does). HTTP/1's server discards by itself.
func (b *requestBody) discard() {
	if b.ReadCloser == nil || !b.http2 || b.failure() != nil {
		return
	}
	_ = b.deadline.SetReadDeadline(time.Now().Add(discardPatience))
	_, _ = io.CopyN(io.Discard, b.ReadCloser, maxDiscarded)
}

// failure returns what ended the body before its end; nil where it has not.
func (b *requestBody) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
