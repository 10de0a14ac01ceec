package fast

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/wire"
)

// A requestBody is the body of a request on its way in. The identity package looks at its beginning
// through exchange.Body.
type requestBody struct {
	wire.Body
	c       *conn
	length  int64
	max     int64 // bytes that are allowed; 0: any number
	taken   int64
	pace    pace.Allowance
	expects bool // the client waits for 100 Continue

	seen   []byte // what look has read, and Read returns first
	seenAt int
	err    error // of reading further than seen
}

var continueLine = []byte("HTTP/1.1 100 Continue\r\n\r\n")

func (b *requestBody) reset(c *conn, head *wire.Request) {
	b.c, b.length, b.expects, b.max, b.taken = c, head.Length, head.Expect, 0, 0
	b.seen, b.seenAt, b.err = b.seen[:0], 0, nil
	if c == nil {
		b.Body.Reset(nil, 0)
		return
	}
	b.Body.Reset(&c.in, head.Length)
	b.max = max(c.engine.Limits.Body, 0)
	b.pace.Begin(&c.engine.Pace)
}

// isUnasked reports whether the client still waits for 100 Continue.
func (b *requestBody) isUnasked() bool { return b.expects }

// ask sends 100 Continue to a client that waits for it.
func (b *requestBody) ask() error {
	if !b.expects {
		return nil
	}
	b.expects = false
	b.c.detach()
	_, err := b.c.Write(continueLine)
	return err
}

// Read reads, with a deadline for a client that stalls or trickles. The error for a body that is
// longer than is allowed is an
// *http.MaxBytesError.
func (b *requestBody) Read(p []byte) (int, error) {
	if b.seenAt < len(b.seen) {
		n := copy(p, b.seen[b.seenAt:])
		if b.seenAt += n; b.seenAt == len(b.seen) && errors.Is(b.err, io.EOF) {
			return n, io.EOF // with the last bytes, so that no answer is taken for an early one
		}
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.read(p)
}

func (b *requestBody) read(p []byte) (int, error) {
	if err := b.ask(); err != nil {
		return 0, err
	}
	limits := &b.c.engine.Pace
	var began time.Time
	waits := b.length < 0 || b.length-b.taken > int64(b.c.in.Len())
	if waits {
		began = time.Now()
		b.c.allow(began, b.pace.Next(limits))
		b.c.paced.AwaitBody(&b.pace, limits, began)
	}
	n, err := b.Body.Read(p)
	if waits && !b.c.paced.EndAwait(&b.pace, limits, began, n) && err == nil {
		err = pace.ErrTooSlow
	}
	if b.taken += int64(n); b.max > 0 && b.taken > b.max {
		return 0, &http.MaxBytesError{Limit: b.max}
	}
	return n, err
}

// look returns the first bytes of the body, at most limit, and keeps them for Read.
func (b *requestBody) look(limit int) []byte {
	for len(b.seen) < limit && b.err == nil {
		if len(b.seen) == cap(b.seen) {
			b.seen = append(b.seen, 0)[:len(b.seen)]
		}
		n, err := b.read(b.seen[len(b.seen):min(cap(b.seen), limit)])
		b.seen, b.err = b.seen[:len(b.seen)+n], err
	}
	n := min(len(b.seen), limit)
	return b.seen[:n:n]
}

// maxDisposed is how much is read of an unwanted body, so that the connection can be used again.
const maxDisposed = 256 << 10

// isTooMuch reports whether dispose would give up: the rest of the body is long, or the client
// waits for 100 Continue and may or may not send it now.
func (b *requestBody) isTooMuch() bool { return b.expects || b.length > maxDisposed+b.taken }

// dispose reads what is left of the body, if that is short, and reports whether the connection can
// be used again.
func (b *requestBody) dispose() bool {
	if b.Done() {
		return true
	}
	if b.isTooMuch() {
		return false
	}
	b.c.moveDeadline(time.Now().Add(min(b.c.engine.Limits.Stall, disposePatience)))
	_, err := io.CopyN(io.Discard, &b.Body, maxDisposed+1)
	return errors.Is(err, io.EOF) && b.Done()
}

// disposePatience is for how long the rest of an unwanted body is awaited.
const disposePatience = 5 * time.Second

// Body implements identity.Request.
func (x *exchange) Body(limit int) []byte {
	if x.head.Length == 0 {
		return nil
	}
	return x.body.look(limit)
}
