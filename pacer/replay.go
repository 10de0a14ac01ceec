package pacer

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// A replay sends the body of a request for each attempt. If the request has GetBody, the replay
// calls it. If not, it keeps what was read, up to a bound. It reads the body only when the base
// transport does, never ahead, so that a body that is still being written is sent as it comes.
type replay struct {
	request *http.Request
	maxKept int64

	tape *tape // of a body without GetBody
	sent bool  // whether the transport has to close the request's own body
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
		b.tape = &tape{from: r.Body, maxKept: b.maxKept}
	}
	return withBody(r, b.tape.play()), nil
}

// withBody returns a copy of r with another body. It does not change r, which is its caller's.
func withBody(r *http.Request, body io.ReadCloser) *http.Request {
	out := r.WithContext(r.Context())
	out.Body = body
	return out
}

// again reports whether the body can be sent once more. If so, that does not change.
func (b *replay) again() bool {
	return b.tape == nil || b.tape.rewind()
}

// done closes what the transport does not: the body of a request that was never sent, and the
// source of a tape.
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
	from io.ReadCloser

	mu   sync.Mutex
	kept []byte
	// offset in the body of the first byte of kept: 0 until more was read than is kept
	start    int64
	maxKept  int64         // bytes
	over     bool          // more was read than is kept
	end      error         // of from
	fetching chan struct{} // closed when the read of from has returned; nil: no read in progress
	current  *playback     // only it may read on; nil between two
	open     int           // playbacks
	finished bool
	closed   bool
}

// play returns the body from its beginning, and replaces the current playback.
func (t *tape) play() *playback {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open++
	t.current = &playback{tape: t, done: make(chan struct{})}
	return t.current
}

// rewind reports whether the body can be played from its beginning. If so the current playback
// reads no more, and what its last read still brings is kept.
func (t *tape) rewind() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	t.current = nil
	return true
}

// read reads at a playback's position until the playback is closed: a transport that abandons a
// request closes its body, and waits for the reader. What the source still brings after that is
// kept for the next playback.
func (t *tape) read(b []byte, p *playback) (int, error) {
	for {
		n, fetching, err := t.again(b, p)
		if fetching == nil {
			return n, err
		}
		select {
		case <-fetching:
		case <-p.done:
		}
	}
}

// again reads what is kept. If the source has to be read, a goroutine does that, and again returns
// a channel that is closed when it is done.
func (t *tape) again(b []byte, p *playback) (n int, fetching <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case p != t.current || p.closed:
		return 0, nil, errClosed
	case p.at < t.start+int64(len(t.kept)):
		n := copy(b, t.kept[p.at-t.start:])
		if t.over {
			t.kept, t.start = t.kept[p.at-t.start+int64(n):], p.at+int64(n)
		}
		return n, nil, nil
	case t.end != nil || len(b) == 0:
		return 0, nil, t.end
	}
	if t.fetching == nil {
		t.fetching = make(chan struct{})
		go t.fetch(make([]byte, min(len(b), 32<<10)))
	}
	return 0, t.fetching, nil
}

// fetch reads once from the source. It ends when finish closes the source, at the latest.
func (t *tape) fetch(b []byte) {
	n, err := t.from.Read(b)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b[:n]...)
	t.end = err
	if t.current != nil && t.start+int64(len(t.kept)) > t.maxKept {
		t.over = true
	}
	close(t.fetching)
	t.fetching = nil
}

var errClosed = errors.New("read a request's body: it is closed")

// finish closes the source as soon as no playback is open.
func (t *tape) finish() {
	t.mu.Lock()
	t.finished = true
	t.mu.Unlock()
	t.close()
}

// close closes a source that is no longer needed.
func (t *tape) close() {
	t.mu.Lock()
	last := t.finished && t.open == 0 && !t.closed
	t.closed = t.closed || last
	t.mu.Unlock()
	if last {
		t.from.Close()
	}
}

// A playback plays a tape once from its beginning.
type playback struct {
	tape   *tape
	at     int64
	done   chan struct{} // closed by Close
	closed bool          // guarded by tape.mu
}

func (p *playback) Read(b []byte) (int, error) {
	n, err := p.tape.read(b, p)
	p.at += int64(n)
	return n, err
}

// Close closes this playback only.
func (p *playback) Close() error {
	p.tape.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.done)
		p.tape.open--
	}
	p.tape.mu.Unlock()
	p.tape.close()
	return nil
}
