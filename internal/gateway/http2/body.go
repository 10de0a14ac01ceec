package http2

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// A requestBody is the body of a request on its way in, read from what its stream has buffered. The
// identity package looks at its beginning through exchange.Body.
type requestBody struct {
	x       *exchange
	max     int64 // bytes that are allowed; 0: any number
	taken   int64
	pace    pace.Allowance
	expects bool // the client waits for 100 Continue
	closed  bool // by Close; the connection's mutex guards it
	tunnel  bool // it is a websocket's, which may be silent (pace.Tunnel)

	seen   []byte // what look has read, and Read returns first
	seenAt int
	err    error // of reading further than seen
}

func (b *requestBody) begin(x *exchange) {
	b.x, b.expects, b.max, b.taken = x, x.head.Expect, max(x.c.engine.Limits.Body, 0), 0
	b.pace.Begin(&x.c.engine.Pace)
}

func (b *requestBody) end() {
	seen := b.seen[:0]
	if cap(seen) > maxKept {
		seen = nil
	}
	*b = requestBody{seen: seen}
}

// Read reads, with a bound for a client that stalls or trickles. The error for a body that is
// longer than is allowed is an *http.MaxBytesError.
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

// Close ends a Read that another goroutine is in, and every further one.
func (b *requestBody) Close() error {
	c := b.x.c
	c.mu.Lock()
	defer c.mu.Unlock()
	b.closed = true
	wake(b.x.s.readable)
	return nil
}

func (b *requestBody) read(p []byte) (int, error) {
	for {
		n, ready, err := b.takeSome(p)
		if ready {
			b.pace.Spend(&b.x.c.engine.Pace, 0, n)
			if b.taken += int64(n); b.max > 0 && b.taken > b.max {
				return 0, &http.MaxBytesError{Limit: b.max}
			}
			return n, err
		}
		if err := b.await(); err != nil {
			return 0, err
		}
	}
}

// maxRead is how much one read returns: nearly a large buffer of relay.Buffers, and not all of it,
// so that bodies that no backend reads do not wait in the largest ones.
const maxRead = 63 << 10

// takeSome takes what the stream has buffered. ready is false if the client has to be waited for.
func (b *requestBody) takeSome(p []byte) (n int, ready bool, err error) {
	c, s := b.x.c, b.x.s
	c.mu.Lock()
	switch {
	case b.closed:
		err = http.ErrBodyReadAfterClose
	case len(s.buffer) > s.at:
		n = copy(p[:min(len(p), maxRead)], s.buffer[s.at:])
		if s.at += n; s.at == len(s.buffer) {
			s.dropBuffer() // its window is given back, so its memory has to be, too
		}
		s.giveBack(int64(n))
		if c.paced != nil {
			c.paced.Uploads().Read(n, s.at == len(s.buffer), c.paced.Received())
		}
		if s.ended && len(s.buffer) == 0 && s.err == nil {
			err = io.EOF
		}
	case s.err != nil:
		err = s.err
	case s.ended:
		err = io.EOF
	default:
		if s.readable == nil {
			s.readable = make(chan struct{}, 1)
		}
		select {
		case <-s.readable: // of an earlier wait
		default:
		}
		expects := b.expects
		b.expects = false
		if expects && !s.begun { // else a backend has answered before it asked for the body
			c.appendHead(s.id, http.StatusContinue, nil, false)
		}
		c.mu.Unlock()
		c.flush()
		return 0, false, nil
	}
	if err != nil {
		s.closeBody()
	}
	written := c.isReady()
	c.mu.Unlock()
	if written {
		c.flush() // the windows that were returned
	}
	return n, true, err
}

// await waits for more of the body, or its end.
func (b *requestBody) await() error {
	c, s, limits := b.x.c, b.x.s, &b.x.c.engine.Pace
	if b.tunnel {
		<-s.readable
		return nil
	}
	began := time.Now()
	if c.paced != nil {
		c.paced.Uploads().Await(limits, began, c.paced.Received())
	}
	timer := time.NewTimer(b.pace.NextOfStream(limits))
	defer timer.Stop()
	late := false
	select {
	case <-s.readable:
	case <-timer.C:
		late = true
	}
	now := time.Now()
	continues := b.pace.Spend(limits, now.Sub(began), 0)
	if c.paced != nil {
		shared := c.paced.Uploads().EndAwait(limits, now, c.paced.Received())
		continues = continues || shared && !b.pace.IsOver(limits)
	}
	switch {
	case late:
		return os.ErrDeadlineExceeded
	case !continues:
		return pace.ErrTooSlow
	}
	return nil
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
