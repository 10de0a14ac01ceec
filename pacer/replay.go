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
		b.tape = &tape{from: r.Body, most: b.most}
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
	from io.ReadCloser

	mu       sync.Mutex
	kept     []byte
	start    int64         // where in the body kept begins: 0 until more was read than is kept
	most     int64         // bytes
	over     bool          // more was read than is kept
	end      error         // of from
	fetching chan struct{} // closed when what from is asked for has come; nil: nothing is
	current  *playback     // only it reads on; nil between two
	open     int           // playbacks
	finished bool
	closed   bool
}

// play returns the body from its beginning, instead of the one that played before.
func (t *tape) play() *playback {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open++
	t.current = &playback{tape: t, done: make(chan struct{})}
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

// read reads at a playback's position, until that is closed: a transport that gives a request up closes its body, and waits for
// whoever reads it. What the source still brings then is there for the next playback.
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

// again reads what is kept. Where the source has to be asked it does so aside, and returns what is closed when that has come.
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

// fetch reads once from the source. It ends when the source is closed at the latest, which finish sees to.
func (t *tape) fetch(b []byte) {
	n, err := t.from.Read(b)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b[:n]...)
	t.end = err
	if t.current != nil && t.start+int64(len(t.kept)) > t.most {
		t.over = true
	}
	close(t.fetching)
	t.fetching = nil
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
	at     int64
	done   chan struct{} // closed with it
	closed bool          // guarded by the tape
}

// Read reads on.
func (p *playback) Read(b []byte) (int, error) {
	n, err := p.tape.read(b, p)
	p.at += int64(n)
	return n, err
}

// Close ends this playback alone.
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
