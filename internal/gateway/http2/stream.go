package http2

import (
	"errors"

	"golang.org/x/net/http2"

	"github.com/weirlimit/weir/internal/wire"
)

// A stream is one request and its answer, as its frames see it. Everything is guarded by the
// connection's mutex.
type stream struct {
	c      *conn
	id     uint32
	ended  bool         // the client has ended its side
	begun  bool         // the head of the final answer is in the buffer
	over   bool         // this side has ended, with its last frame in the buffer
	gone   bool         // the stream was reset by either side, or has ended with its connection
	served bool         // nobody serves it any more
	tunnel bool         // it is a websocket
	ctx    *callContext // ends with the stream

	// to the client
	window   int64         // how much of the answer's body the client takes
	writable chan struct{} // made by the first wait
	waits    bool          // it is among the conn's waiting

	// from the client
	length       int64 // of the body; wire.Chunked: not known
	came         int64
	left         int64 // how much more the client may send
	credit       int64 // of it, what was read and not returned
	buffer       []byte
	at           int   // what was read of buffer
	err          error // why the body ended early
	trailers     []wire.Field
	readable     chan struct{} // made by the first wait
	counted      bool          // among the bodies of the connection (pace.Direction)
	discards     bool          // nobody reads the body any more
	discarded    int64
	discardUntil int64 // the tick at which a client that goes on sending is stopped; 0: none
}

var (
	errGone    = errors.New("the client has ended the stream")
	errBadBody = errors.New("the request's body is not as long as it declares")
)

// What is read of a request whose answer is complete, and for how long. Some clients drop an answer
// if their stream is reset before its end (curl 7.88 does).
const (
	maxDiscarded = 256 << 10
	discardTicks = 10 // a second
)

// open opens a stream. The mutex is held.
func (c *conn) open(id uint32, ends bool) *stream {
	var s *stream
	if n := len(c.spare); n > 0 {
		s = c.spare[n-1]
		c.spare[n-1], c.spare = nil, c.spare[:n-1]
	} else {
		s = &stream{c: c, ctx: &callContext{base: c.engine.base}}
	}
	s.id, s.ended, s.window, s.left = id, ends, c.firstWindow, streamWindow
	if c.streams == nil {
		c.streams = make(map[uint32]*stream)
	}
	c.streams[id] = s
	c.idle, c.opening = 0, false
	if !ends && c.paced != nil {
		s.counted = true
		c.paced.Uploads().OpenBody()
	}
	return s
}

// keep keeps a stream for a later request of the connection, unless something may refer to it yet:
// a reader of its body, what is called at the end of its context, or a frame of either side. Only
// dialing may still ask its context. The mutex is held.
func (c *conn) keep(s *stream) {
	if c.streams[s.id] != s && s.over && !s.gone && !s.waits && s.length == 0 && s.ctx.isFree() && len(c.spare) < maxSpare {
		*s = stream{c: c, ctx: s.ctx}
		c.spare = append(c.spare, s)
	}
}

// maxSpare is how many streams a connection keeps.
const maxSpare = 16

// remove forgets a stream that has ended on both sides. The mutex is held.
func (c *conn) remove(s *stream) {
	if c.streams[s.id] != s {
		return
	}
	delete(c.streams, s.id)
	s.closeBody()
	if len(c.streams) == 0 {
		c.idle = max(c.engine.tick.Load(), 1)
	}
	c.endIfDone()
}

// complete records that the last frame of the answer is in the buffer. The mutex is held.
func (s *stream) complete() {
	s.over = true
	if !s.tunnel { // whose sides end one by one
		s.discard()
	}
	if s.ended {
		s.c.remove(s)
	}
}

// discard has the rest of the request discarded, and what nobody has read. The mutex is held.
func (s *stream) discard() {
	s.discards = true
	s.closeBody()
	s.discardUntil = s.c.engine.tick.Load() + discardTicks
	s.giveBack(int64(len(s.buffer) - s.at))
	s.dropBuffer()
}

// dropBuffer gives up what is buffered of the request's body. The mutex is held.
func (s *stream) dropBuffer() {
	dropBody(s.buffer)
	s.buffer, s.at = nil, 0
}

// reset ends a stream from this side. It counts as open until it is served no more, as after the
// client's reset: a client can cause both. The mutex is held.
func (c *conn) reset(s *stream, code http2.ErrCode) {
	if s.gone {
		return
	}
	c.appendReset(s.id, code)
	c.resets.add(s.id)
	s.end(errGone)
	if s.served || s.over {
		c.remove(s)
	}
}

// resetMalformed resets a stream whose body is malformed. It does so at once, so that no answer to
// the request goes out after the error is known. The mutex is held.
func (s *stream) resetMalformed(err error) {
	s.err = err
	s.c.bounds.count(s.c, costOfReset)
	s.c.reset(s, http2.ErrCodeProtocol)
}

// end ends a stream on both sides: what waits for it does not wait any more. The mutex is held.
func (s *stream) end(err error) {
	if s.gone {
		return
	}
	s.gone = true
	if s.err == nil {
		s.err = err
	}
	s.c.giveBack(int64(len(s.buffer) - s.at))
	s.dropBuffer()
	s.closeBody()
	wake(s.readable)
	wake(s.writable)
	s.ctx.cancel()
}

// endByClient ends a stream that the client has reset. It counts as open until it is served no
// more. The mutex is held.
func (s *stream) endByClient() {
	s.end(errGone)
	if s.served || s.over {
		s.c.remove(s)
	}
}

// release is called when nobody serves the stream any more. It may be another request's afterwards.
func (s *stream) release() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.served = true
	switch {
	case s.gone:
		s.c.remove(s)
	case !s.over: // it was given up without an answer
		s.c.reset(s, http2.ErrCodeInternal)
	case !s.discards: // a tunnel's, whose client has not ended its side
		s.discard()
	}
	s.c.keep(s)
}

// isMalformed reports whether the request's body, or its trailers, are malformed (RFC 9113, section
// 8.1.1). The mutex is held.
func (s *stream) isMalformed() bool {
	var malformed *wire.MalformedError
	return errors.Is(s.err, errBadBody) || errors.As(s.err, &malformed)
}

// wake ends the wait on a channel, now or when it comes; nil: nobody has ever waited.
func wake(waits chan struct{}) {
	select {
	case waits <- struct{}{}:
	default:
	}
}

// A resetSet holds the last streams that were reset here: the client may have sent frames of them
// before it knew.
type resetSet struct {
	ids  *[64]uint32 // nil: none was
	next int
}

func (r *resetSet) add(id uint32) {
	if r.ids == nil {
		r.ids = new([64]uint32)
	}
	r.ids[r.next%len(r.ids)] = id
	r.next++
}

func (r *resetSet) has(id uint32) bool {
	if r.ids == nil {
		return false
	}
	for _, known := range r.ids {
		if known == id {
			return true
		}
	}
	return false
}
