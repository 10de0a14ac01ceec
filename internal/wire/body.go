package wire

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
)

// A Body reads the body of one message from the message's Reader. The zero value is one of no bytes. It is for one goroutine
// at a time.
type Body struct {
	src      *Reader
	state    state
	answer   bool  // it is a response's
	left     int64 // of a known length, or of the chunk
	extra    int   // bytes of chunk extensions so far
	trailers []Field
	err      error // that reading ended with, where it is broken
}

// A state is what a body goes on with.
type state uint8

const (
	whole      state = iota
	known            // left bytes
	untilClose       // whatever comes
	chunkLine        // a chunk's size
	chunkData        // left bytes
	chunkEnd         // the end of the line behind a chunk
	trailer          // what is behind the last chunk
	broken
)

// Data that a chunk has so much left of goes into the reader's slice directly; what is less comes with the lines around it.
const straight = 1 << 10

// Reset makes b the body of the next message: length is Request.Length or Response.Length.
func (b *Body) Reset(src *Reader, length int64) {
	*b = Body{src: src}
	switch {
	case length == Chunked:
		b.state = chunkLine
	case length == UntilClose:
		b.state = untilClose
	case length > 0:
		b.state, b.left = known, length
	}
}

// ResetAnswer is Reset for the body of a response. Trailers that belong in the head are left out of it, not refused: its head is
// on its way already.
func (b *Body) ResetAnswer(src *Reader, length int64) {
	b.Reset(src, length)
	b.answer = true
}

// Read returns the next bytes of the body without its framing, and io.EOF behind the last one (at once with the last bytes of
// a known length, and of chunks where the end has come with them). It reads nothing beyond the body but into the Reader. A body
// that breaks off is io.ErrUnexpectedEOF; one whose framing is wrong is a *Refusal, of a
// status for whoever sent a request (400, 431). Errors stay.
func (b *Body) Read(p []byte) (int, error) {
	switch {
	case b.state == whole:
		return 0, io.EOF
	case b.state == broken:
		return 0, b.err
	case len(p) == 0:
		return 0, nil
	case b.state == known:
		n, err := b.direct(p)
		if b.left == 0 {
			b.state = whole
			return n, io.EOF
		}
		return n, err
	case b.state == untilClose:
		n, err := b.src.Read(p)
		if errors.Is(err, io.EOF) {
			b.state = whole
		} else if err != nil {
			b.fail(err)
		}
		return n, err
	}
	return b.chunks(p)
}

// Done reports whether the body was read to its end, trailers included: only then may the connection be used again.
func (b *Body) Done() bool { return b.state == whole }

// Trailers are the field lines behind the last chunk, once Done: their names are none of framing, routing, authentication or
// the message's own (RFC 9110, section 6.5.1: those are a *Refusal).
func (b *Body) Trailers() []Field { return b.trailers }

// direct reads once, at most what is left.
func (b *Body) direct(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.src.Read(p)
	b.left -= int64(n)
	if err != nil {
		return n, b.fail(err)
	}
	return n, nil
}

// fail ends the body with an error.
func (b *Body) fail(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	b.state, b.err = broken, err
	return err
}

// chunks takes all that is buffered and fits, and reads from the connection only where that is nothing.
func (b *Body) chunks(p []byte) (int, error) {
	n := 0
	for {
		got, hungry := b.step(p[n:])
		n += got
		switch {
		case b.state == whole:
			return n, io.EOF
		case n > 0 && (hungry || n == len(p) || b.state == broken):
			return n, nil
		case b.state == broken:
			return 0, b.err
		case !hungry:
		case b.state == chunkData && b.left >= straight:
			n, err := b.direct(p)
			if err == nil && b.left == 0 {
				b.state = chunkEnd
			}
			return n, err
		default:
			if err := b.src.Fill(b.most()); err != nil {
				_ = b.fail(err)
			}
		}
	}
}

// most is how much may be buffered while the next thing is awaited: with anything shorter than a line's bound, step decides.
func (b *Body) most() int {
	if b.state == trailer {
		return MostTrailerBytes
	}
	return size0
}

// step goes one step on with what is buffered, and tells how many bytes of the body that gave. It is hungry where it needs more
// bytes than there are.
func (b *Body) step(p []byte) (n int, hungry bool) {
	in := b.src.Buffered()
	if len(in) == 0 {
		return 0, true
	}
	switch b.state {
	case chunkLine:
		return 0, b.line(in)
	case chunkData:
		n = copy(p, in[:min(int64(len(in)), b.left)])
		b.src.Discard(n)
		if b.left -= int64(n); b.left == 0 {
			b.state = chunkEnd
		}
		return n, false
	case chunkEnd:
		if in[0] != '\r' || len(in) > 1 && in[1] != '\n' {
			_ = b.fail(badChunkEnd)
			return 0, false
		}
		if len(in) == 1 {
			return 0, true
		}
		b.src.Discard(2)
		b.state = chunkLine
		return 0, false
	}
	return 0, b.trailer(in)
}

// line reads a chunk's size.
func (b *Body) line(in []byte) (hungry bool) {
	end := bytes.IndexByte(in[:min(len(in), MostChunkLine)], '\n')
	if end < 0 {
		if len(in) >= MostChunkLine {
			_ = b.fail(longChunkLine)
			return false
		}
		return true
	}
	digits, size := 0, uint64(0)
	for classes[in[digits]]&isHex != 0 { // the line feed ends it
		size = size<<4 | uint64(hex(in[digits]))
		digits++
	}
	extension := in[digits:end]
	switch {
	case digits == 0 || digits > 16 || size > math.MaxInt64:
		_ = b.fail(badChunkSize)
		return false
	case len(extension) == 0 || extension[len(extension)-1] != '\r':
		_ = b.fail(bareChunkLF)
		return false
	}
	if extension = extension[:len(extension)-1]; len(extension) > 0 {
		if extension[0] != ';' || !values(extension) {
			_ = b.fail(badExtension)
			return false
		}
		if b.extra += len(extension); b.extra > MostExtensions {
			_ = b.fail(tooManyExtensions)
			return false
		}
	}
	b.src.Discard(end + 1)
	if b.state, b.left = chunkData, int64(size); size == 0 {
		b.state = trailer
	}
	return false
}

func hex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

func values(b []byte) bool {
	for _, c := range b {
		if classes[c]&inValue == 0 {
			return false
		}
	}
	return true
}

// trailer reads what is behind the last chunk: an empty line, mostly.
func (b *Body) trailer(in []byte) (hungry bool) {
	n := b.src.section()
	switch {
	case n > MostTrailerBytes || n == 0 && len(in) >= MostTrailerBytes:
		_ = b.fail(longTrailers)
		return false
	case n == 0:
		return true
	case n == len("\r\n"):
		b.src.Discard(n)
		b.state = whole
		return false
	}
	lines := string(in[:n])
	b.src.Discard(n)
	fields, refusal := fieldLines(nil, lines, 0, MostTrailerFields)
	if refusal != nil {
		_ = b.fail(refusal)
		return false
	}
	if b.answer {
		fields = slices.DeleteFunc(fields, func(f Field) bool { return !MayTrail(f.Name) })
	}
	for i := range fields {
		if !MayTrail(fields[i].Name) {
			_ = b.fail(headTrailer)
			return false
		}
	}
	b.state, b.trailers = whole, fields
	return false
}
