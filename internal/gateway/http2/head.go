package http2

import (
	"errors"
	"slices"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirlimit/weir/internal/wire"
)

// A block is a head, or trailers, that are being read: the fields of a HEADERS frame and of its
// CONTINUATIONs. Only the read loop uses it.
type block struct {
	id      uint32 // of its stream; 0: none is being read
	ends    bool   // the stream ends with it
	kind    blockKind
	code    http2.ErrCode // of ofBad
	x       *exchange     // of a head
	fields  []wire.Field  // of trailers
	size    int           // of the fields that were decoded
	lines   int
	encoded int // bytes that came
	frames  int
	large   bool // there are more fields than allowed, and none is kept
}

// A blockKind is what a block belongs to.
type blockKind uint8

const (
	aHead     blockKind = iota
	ofTrailer           // of a stream that is open
	ofRefused           // a stream that is refused
	ofReset             // a stream that was reset here a moment ago
	ofBad               // a stream that ends with an error, see block.code
)

// maxLines is how many fields a head may have, with the pseudo-fields.
const maxLines = wire.MaxFields + 5

// onHeaders begins a block.
func (c *conn) onHeaders(f *http2.HeadersFrame) error {
	kind, err := c.beginBlock(f.StreamID)
	if err != nil {
		return err
	}
	c.block = block{id: f.StreamID, ends: f.StreamEnded(), kind: kind, code: http2.ErrCodeStreamClosed}
	switch {
	case f.HasPriority() && f.Priority.StreamDep == f.StreamID:
		c.block.kind, c.block.code = ofBad, http2.ErrCodeProtocol
	case kind == aHead:
		c.block.x = c.engine.exchanges.Get().(*exchange)
	}
	return c.onFragment(f.HeaderBlockFragment(), f.HeadersEnded())
}

// beginBlock returns what a block is for.
func (c *conn) beginBlock(id uint32) (blockKind, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id%2 == 0 {
		return 0, http2.ConnectionError(http2.ErrCodeProtocol)
	}
	s := c.streams[id]
	switch {
	case id <= c.last && (s == nil || s.gone) && c.resets.has(id):
		return ofReset, nil
	case s != nil && (s.ended || s.gone):
		return ofBad, nil
	case s != nil:
		return ofTrailer, nil
	case id <= c.last: // it has ended, or was never opened (RFC 9113, section 5.1.1)
		return 0, http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.last = id
	if c.ending.final || len(c.streams) >= c.engine.Limits.Streams {
		c.bounds.count(c, costOfReset)
		if c.ending.final {
			c.bounds.progress(0) // the client does not know yet
		}
		return ofRefused, nil
	}
	c.opening = true
	return aHead, nil
}

func (c *conn) onContinuation(f *http2.ContinuationFrame) error {
	return c.onFragment(f.HeaderBlockFragment(), f.HeadersEnded())
}

// onFragment decodes a part of a block.
func (c *conn) onFragment(p []byte, last bool) error {
	b := &c.block
	b.frames++
	if b.encoded += len(p); b.frames > maxHeadFrames || b.encoded > c.engine.Limits.HeaderBytes+largestFrame {
		c.release(b)
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	_, err := c.decoder.Write(p)
	if err == nil && last {
		err = c.decoder.Close()
	}
	switch {
	case errors.Is(err, hpack.ErrStringLength), b.size > 2*c.engine.Limits.HeaderBytes, b.lines > 2*maxLines:
		c.release(b)
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	case err != nil:
		c.release(b)
		return http2.ConnectionError(http2.ErrCodeCompression)
	case !last:
		return nil
	}
	return c.endBlock()
}

// emit takes a field that the decoder has read.
func (c *conn) emit(f hpack.HeaderField) {
	b := &c.block
	b.lines++
	b.size += len(f.Name) + len(f.Value) + len(": \r\n")
	if b.size > c.engine.Limits.HeaderBytes || b.lines > maxLines {
		b.large = true
		return
	}
	switch field := (wire.Field{Name: f.Name, Value: f.Value}); b.kind {
	case aHead:
		b.x.head.Fields = append(b.x.head.Fields, field)
	case ofTrailer:
		b.fields = append(b.fields, field)
	}
}

// release gives up a block.
func (c *conn) release(b *block) {
	if b.x != nil {
		b.x.head.Reset()
		c.engine.exchanges.Put(b.x)
		b.x = nil
	}
}

// endBlock is called when a block is whole.
func (c *conn) endBlock() error {
	b := c.block
	c.block = block{}
	switch b.kind {
	case aHead:
		c.begin(&b)
		return nil
	case ofRefused:
		return c.refuse(b.id)
	case ofReset:
		return nil
	case ofBad:
		c.notOpened()
		return http2.StreamError{StreamID: b.id, Code: b.code}
	}
	return c.endTrailers(&b)
}

// notOpened records that the head that was read opens no stream.
func (c *conn) notOpened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opening = false
	c.endIfDone()
}

// refuse refuses a stream, of which nothing was done: the client may send its request again.
func (c *conn) refuse(id uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resets.add(id)
	c.appendReset(id, http2.ErrCodeRefusedStream)
	return nil
}

// endTrailers takes the trailers of a request.
func (c *conn) endTrailers(b *block) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[b.id]
	switch {
	case s == nil || s.gone:
		return nil
	case !b.ends || b.large:
		return http2.StreamError{StreamID: b.id, Code: http2.ErrCodeProtocol}
	}
	err := wire.CheckTrailers(b.fields)
	var malformed *wire.MalformedError
	switch {
	case errors.As(err, &malformed):
		s.resetMalformed(err)
		return nil
	case err != nil:
		// as HTTP/1.1's: the body has ended with something that the request may not have
		s.err = err
		s.ended = true
		wake(s.readable)
		return nil
	}
	return s.onTrailers(slices.Clip(b.fields))
}
