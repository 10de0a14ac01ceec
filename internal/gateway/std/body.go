package std

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// A requestBody gives each read of a request's body a deadline: a client may take its time, but not
// stall or trickle.
type requestBody struct {
	io.ReadCloser
	of       *exchange
	deadline readDeadline
	limits   *pace.Limits
	http2    bool
	conn     *pace.Conn // nil: not known

	reading  sync.Mutex // held while the body is read: relay reads in a goroutine of its own
	mu       sync.Mutex // guards what follows
	pace     pace.Allowance
	by       time.Time // the deadline; zero: none
	begun    bool      // something of it was read, or tried to be
	cut      bool      // HTTP/1: Close has ended a read, and with it the request's context
	finished bool
	whole    bool  // it was read to its end
	closed   bool  // HTTP/2: the connection counts the body as ended
	err      error // why the body ended early
}

type readDeadline interface{ SetReadDeadline(time.Time) error }

// paceBody puts the body of r, if it has one, under deadlines. It returns a copy of r then, because
// the server looks at its own Request.Body for what is left to discard, and whether the client
// still waits for 100 Continue.
func (x *exchange) paceBody(r *http.Request) *http.Request {
	deadline, ok := serversWriter(x.ResponseWriter).(readDeadline)
	// HTTP/2's server gives each request a Body, and a length of 0 if it has none.
	if !ok || r.Body == nil || r.Body == http.NoBody || x.http2 && r.ContentLength == 0 {
		return r
	}
	b := &x.body
	b.ReadCloser, b.of, b.deadline, b.limits, b.http2 = r.Body, x, deadline, &x.engine.Pace, x.http2
	b.conn = pace.ConnOf(r.Context())
	b.pace.Begin(b.limits)
	if b.http2 && b.conn != nil {
		b.conn.Uploads().OpenBody()
	}
	if !b.http2 {
		// Also for a body that no handler reads: the server discards it before the answer.
		b.arm(x.Start)
	}
	paced := new(http.Request)
	*paced = *r
	paced.Body = b
	x.request = paced
	return paced
}

// arm moves the deadline, unless it is close enough to what it should be.
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
	if b.whole { // the server closes the body when the answer begins
		b.mu.Unlock()
		return 0, io.EOF
	}
	if b.finished {
		b.mu.Unlock()
		return 0, http.ErrBodyReadAfterClose
	}
	began := time.Now()
	b.begun = true
	b.arm(began)
	b.mu.Unlock()

	b.await(began)
	n, err := b.ReadCloser.Read(p)
	continues := b.endAwait(began, n, n < len(p))

	b.mu.Lock()
	defer b.mu.Unlock()
	if !continues && err == nil && !b.finished {
		err = pace.ErrTooSlow
		b.by = began
		_ = b.deadline.SetReadDeadline(b.by) // the server does not wait for the rest either
	}
	if b.whole = err == io.EOF; err != nil && !b.whole && !b.cut {
		b.err = err
	}
	if err != nil {
		b.close()
	}
	// HTTP/2's deadline would break a stream between two reads, and HTTP/1's would stay on the
	// connection after the body. After an error it stays, because the server would wait for the
	// rest.
	if !b.finished && (err == io.EOF || b.http2) {
		b.disarm()
	}
	return n, err
}

// Close ends the body, and a read that another goroutine is in. Over HTTP/1 such a read cannot be
// continued: the server ends the connection after the answer. What else is left of the body is the
// server's to discard.
func (b *requestBody) Close() error {
	if b.http2 {
		return b.ReadCloser.Close()
	}
	b.mu.Lock()
	b.finished = true
	b.mu.Unlock()
	if b.reading.TryLock() {
		b.reading.Unlock()
		return nil
	}
	b.mu.Lock()
	b.cut = b.of.request.Context().Err() == nil // else its client has ended it
	b.mu.Unlock()
	endAfterAnswer(b.of.ResponseWriter)
	err := b.deadline.SetReadDeadline(longAgo)
	b.reading.Lock() // until the read has ended
	defer b.reading.Unlock()
	return err
}

var longAgo = time.Unix(1, 0)

// endAfterAnswer has HTTP/1's server end the connection after the answer, and leave the client half
// a second to read it. Of what net/http exports, only the reader of a body that is too long does
// that.
func endAfterAnswer(w http.ResponseWriter) {
	tooLong := http.MaxBytesReader(serversWriter(w), io.NopCloser(strings.NewReader("x")), 0)
	_, _ = tooLong.Read(make([]byte, 1))
}

// serversWriter returns the writer of net/http's server, which Options.Wrap may have wrapped.
func serversWriter(w http.ResponseWriter) http.ResponseWriter {
	for {
		over, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = over.Unwrap()
	}
}

// isUnread reports whether some of an HTTP/1 body has not been read.
func (b *requestBody) isUnread() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ReadCloser != nil && !b.http2 && !b.whole
}

// isBegun reports whether something of the body was read.
func (b *requestBody) isBegun() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun
}

// isCut reports whether Close has ended a read, and with it the request's context.
func (b *requestBody) isCut() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cut
}

// finish moves the deadline no more. The last one stays for what the server still discards.
func (b *requestBody) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finished = true
	b.close()
}

// close has an HTTP/2 connection count the body as ended, once. b.mu is held.
func (b *requestBody) close() {
	if b.http2 && b.conn != nil && !b.closed {
		b.closed = true
		b.conn.Uploads().CloseBody(b.conn.Received())
	}
}

// await records that a read begins.
func (b *requestBody) await(now time.Time) {
	switch {
	case !b.http2:
		b.conn.AwaitBody(&b.pace, b.limits, now)
	case b.conn != nil:
		b.conn.Uploads().Await(b.limits, now, b.conn.Received())
	}
}

// endAwait records that a read is over that began at that time and returned n bytes, and whether it
// emptied what was there. It reports whether the client may continue.
func (b *requestBody) endAwait(began time.Time, n int, emptied bool) bool {
	if !b.http2 || b.conn == nil {
		return b.conn.EndAwait(&b.pace, b.limits, began, n)
	}
	now, total := time.Now(), b.conn.Received()
	shared := b.conn.Uploads().EndAwait(b.limits, now, total)
	b.conn.Uploads().Read(n, emptied, total)
	own := b.pace.Spend(b.limits, now.Sub(began), n)
	return own || shared && !b.pace.IsOver(b.limits)
}

// settle ends the body of the last request of a connection. What the client still sends is awaited
// for patience at most, and settle waits for a read that is under way. The server would interrupt
// such a read, and remove the deadline with that, so that it would then wait for ever for what it
// discards of the body. The body must be finished.
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

// isLeft reports whether some of an HTTP/1 body is left to the server, under a deadline. (HTTP/2's
// server ends a stream by itself.)
func (b *requestBody) isLeft() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ReadCloser != nil && !b.http2 && !b.by.IsZero()
}

// How much an HTTP/2 client may still send after it was refused, and for how long that is awaited.
// HTTP/1 has the same patience for a body that is not wanted any more.
const (
	maxDiscarded    = 256 << 10
	discardPatience = time.Second
)

// discard reads what is left of a body that was refused unread. Over HTTP/2 the server would reset
// the stream instead, and some clients then drop the answer (curl 7.88 does). HTTP/1's server
// discards by itself.
func (b *requestBody) discard() {
	if b.ReadCloser == nil || !b.http2 || b.failure() != nil {
		return
	}
	_ = b.deadline.SetReadDeadline(time.Now().Add(discardPatience))
	_, _ = io.CopyN(io.Discard, b.ReadCloser, maxDiscarded)
}

// failure returns why the body ended early; nil if it has not.
func (b *requestBody) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
