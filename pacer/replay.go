package pacer

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// A replay sends the body of a request as often as is asked. A request that can make its body anew does so; of another one
// what was read is kept, up to a bound: it is read when the base transport reads it, never ahead, so that a body which is
// still being written goes out as it comes.
type replay struct {
	request *http.Request
	most    int64

	tape *tape // of a body that cannot be made anew
	sent bool  // whether the request's own body is the transport's to close
}

// next returns the request to send.
func (b *replay) next(attempt int) (*http.Request, error) {
	r := b.request
	if r.Body == nil || r.Body == http.NoBody {
		return r, nil
	}
	b.sent = true
	if r.GetBody != nil {
		if attempt == 1 {
			return r, nil
		}
		body, err := r.GetBody()
		if err != nil {
			return nil, fmt.Errorf("send %s %s again after a 429: make its body anew: %w", r.Method, r.URL.Redacted(), err)
		}
		return withBody(r, body), nil
	}
	if b.tape == nil {
		b.tape = &tape{from: r.Body, most: b.most, reading: make(chan struct{}, 1)}
	}
	return withBody(r, b.tape.play()), nil
}

// withBody is r with another body. The request itself is its caller's, and stays as it is.
func withBody(r *http.Request, body io.ReadCloser) *http.Request {
	out := r.WithContext(r.Context())
	out.Body = body
	return out
}

// again says whether the body can be sent once more. If so it stays so.
func (b *replay) again() bool {
	return b.tape == nil || b.tape.rewind()
}

// done closes what the transport does not: the body of a request that was never sent, and the source of a tape.
func (b *replay) done() {
	switch {
	case b.tape != nil:
		b.tape.finish()
	case !b.sent:
		closeBody(b.request)
	}
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}

// A tape keeps what was read of a body.
type tape struct {
	reading chan struct{} // holds one while from is read, which may take long

	mu       sync.Mutex
	from     io.ReadCloser
	kept     []byte
	most     int64
	over     bool      // more was read than is kept
	end      error     // of from
	current  *playback // only it reads on; one before it may be about to end its last read
	open     int       // playbacks
	finished bool
	closed   bool
}

// play returns the body from its beginning, instead of the one that played before.
func (t *tape) play() *playback {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open++
	t.current = &playback{tape: t}
	return t.current
}

// rewind says whether the body can be played from its beginning. If so the playback before reads no more, and what its last read
// still brings is kept.
func (t *tape) rewind() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	t.current = nil
	return true
}

// read reads at a playback's position. It waits for what another one is reading, and goes on from there.
func (t *tape) read(b []byte, p *playback) (int, error) {
	if n, err, ok := t.again(b, p); ok {
		return n, err
	}
	t.reading <- struct{}{}
	defer func() { <-t.reading }()
	if n, err, ok := t.again(b, p); ok {
		return n, err
	}
	n, err := t.from.Read(b)
	t.mu.Lock()
	defer t.mu.Unlock()
	if p == t.current && int64(len(t.kept)+n) > t.most {
		t.over, t.kept = true, nil
	}
	if !t.over {
		t.kept = append(t.kept, b[:n]...)
	}
	t.end = err
	return n, err
}

// again reads what is kept; ok is false where the source has to be read.
func (t *tape) again(b []byte, p *playback) (n int, err error, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case p != t.current || p.closed:
		return 0, errClosed, true
	case !t.over && p.at < len(t.kept):
		return copy(b, t.kept[p.at:]), nil, true
	case t.end != nil:
		return 0, t.end, true
	}
	return 0, nil, false
}

var errClosed = errors.New("read a request's body: it is closed")

// finish closes the source once nobody plays it.
func (t *tape) finish() {
	t.mu.Lock()
	t.finished = true
	t.mu.Unlock()
	t.close()
}

// close closes the source where it is not needed any more.
func (t *tape) close() {
	t.mu.Lock()
	last := t.finished && t.open == 0 && !t.closed
	t.closed = t.closed || last
	t.mu.Unlock()
	if last {
		t.from.Close()
	}
}

// A playback is a tape played from its beginning, once.
type playback struct {
	tape   *tape
	at     int
	closed bool // guarded by the tape
}

// Read reads on.
func (p *playback) Read(b []byte) (int, error) {
	n, err := p.tape.read(b, p)
	p.at += n
	return n, err
}

// Close ends this playback alone.
func (p *playback) Close() error {
	p.tape.mu.Lock()
	if !p.closed {
		p.closed = true
		p.tape.open--
	}
	p.tape.mu.Unlock()
	p.tape.close()
	return nil
}
