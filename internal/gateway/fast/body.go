package fast

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/wire"
)

// A callerBody is the body of a request on its way in. It is the Body of identity.Request too, which looks at its beginning.
type callerBody struct {
	wire.Body
	c       *fastConn
	length  int64
	most    int64 // bytes that are allowed; 0: any number
	taken   int64
	pace    allowance
	expects bool // the client waits for 100 Continue

	seen   []byte // what was looked at, and is to be read first
	seenAt int
	err    error // that looking met, behind seen
}

var continueLine = []byte("HTTP/1.1 100 Continue\r\n\r\n")

func (b *callerBody) reset(c *fastConn, head *wire.Request) {
	b.c, b.length, b.expects, b.most, b.taken = c, head.Length, head.Expect, 0, 0
	b.seen, b.seenAt, b.err = b.seen[:0], 0, nil
	if c == nil {
		b.Body.Reset(nil, 0)
		return
	}
	b.Body.Reset(&c.in, head.Length)
	b.most = max(c.engine.limits.Body, 0)
	b.pace.begin(&c.engine.limits)
}

// isUnasked reports whether the client still waits to be asked for the body.
func (b *callerBody) isUnasked() bool { return b.expects }

// ask has the client send its body, if it waits for that.
func (b *callerBody) ask() error {
	if !b.expects {
		return nil
	}
	b.expects = false
	_, err := b.c.Write(continueLine)
	return err
}

// Read reads on, with a deadline for a client that stalls or trickles. What is read beyond what is allowed is an *http.MaxBytesError.
func (b *callerBody) Read(p []byte) (int, error) {
	if b.seenAt < len(b.seen) {
		n := copy(p, b.seen[b.seenAt:])
		b.seenAt += n
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.read(p)
}

func (b *callerBody) read(p []byte) (int, error) {
	if err := b.ask(); err != nil {
		return 0, err
	}
	limits := &b.c.engine.limits
	var began time.Time
	waits := b.length < 0 || b.length-b.taken > int64(b.c.in.Len())
	if waits {
		began = time.Now()
		b.c.allow(began, b.pace.next(limits))
		b.c.paced.awaitBody(&b.pace, limits, began)
	}
	n, err := b.Body.Read(p)
	if waits && !b.c.paced.endAwait(&b.pace, limits, began, n) && err == nil {
		err = errTooSlow
	}
	if b.taken += int64(n); b.most > 0 && b.taken > b.most {
		return 0, &http.MaxBytesError{Limit: b.most}
	}
	return n, err
}

// look returns the first bytes, at most limit.
func (b *callerBody) look(limit int) []byte {
	for len(b.seen) < limit && b.err == nil {
		if len(b.seen) == cap(b.seen) {
			b.seen = append(b.seen, 0)[:len(b.seen)]
		}
		n, err := b.read(b.seen[len(b.seen):min(cap(b.seen), limit)])
		b.seen, b.err = b.seen[:len(b.seen)+n], err
	}
	return b.seen[:min(len(b.seen), limit)]
}

// The most that is read of a body that nobody wants, for the connection's sake.
const mostDisposed = 256 << 10

// isTooMuch reports whether what is left of the body will not be disposed of: it is long, or nobody knows whether the client sends it
// now that it was not asked to.
func (b *callerBody) isTooMuch() bool { return b.expects || b.length > mostDisposed+b.taken }

// dispose reads what is left of the body, if that is little, and reports whether the connection can go on.
func (b *callerBody) dispose() bool {
	if b.Done() {
		return true
	}
	if b.isTooMuch() {
		return false
	}
	b.c.moveDeadline(time.Now().Add(min(b.c.engine.limits.Stall, disposePatience)))
	_, err := io.CopyN(io.Discard, &b.Body, mostDisposed+1)
	return errors.Is(err, io.EOF) && b.Done()
}

// disposePatience is for how long the rest of an unwanted body is awaited.
const disposePatience = 5 * time.Second

// Peer implements identity.Request.
func (x *fastExchange) Peer() string { return x.c.peer }

// Header implements identity.Request. A field that Connection names does not reach the backend, so nobody is counted by it (see
// stripNominated).
func (x *fastExchange) Header(name string) []string {
	if x.head.Names(name) && !isWithheld(name) {
		return nil
	}
	return x.head.Values(name)
}

// Query implements identity.Request.
func (x *fastExchange) Query(name string) (string, bool) { return identity.QueryValue(x.query, name) }

// Body implements identity.Request.
func (x *fastExchange) Body(limit int) []byte {
	if x.head.Length == 0 {
		return nil
	}
	return bytes.Clone(x.body.look(limit))
}
