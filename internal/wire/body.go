package wire

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
)

// A Body reads the body of one message from the message's Reader. The zero value is an empty body.
// It is for one goroutine at a time.
type Body struct {
	src      *Reader
	state    state
	answer   bool  // of a response
	left     int64 // of a known length, or of the chunk
	extra    int   // bytes of chunk extensions so far
	trailers []Field
	err      error // of every further read, if it is broken
}

// A state is what comes next of a body.
type state uint8

const (
	whole      state = iota
	known            // left bytes
	untilClose       // everything until the connection ends
	chunkLine        // a chunk's size
	chunkData        // left bytes
	chunkEnd         // the end of the line after a chunk
	trailer          // what follows the last chunk
	broken
)

// straight is how much a chunk must have left to be read into the caller's slice directly; less is
// buffered with the lines around it.
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

// ResetAnswer is Reset for the body of a response. Trailers that belong in the head are left out,
// not refused: its head may have been passed on already.
func (b *Body) ResetAnswer(src *Reader, length int64) {
	b.Reset(src, length)
	b.answer = true
}

// Read returns the next bytes of the body without its framing, and io.EOF after the last one (with
// the last bytes of a known length, and of chunks if the end is buffered). It reads nothing beyond
// the body except into the Reader. The error is io.ErrUnexpectedEOF for a body that breaks off, and
// a *Refusal for one whose framing is wrong, with the status for the sender of a request (400,
// 431). Every further Read returns the same error.
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

// Done reports whether the body was read to its end, trailers included. Only then may the
// connection be used again.
func (b *Body) Done() bool { return b.state == whole }

// Trailers returns the field lines after the last chunk, once Done. MayTrail holds for their names:
// a request with others is refused.
func (b *Body) Trailers() []Field { return b.trailers }

// direct reads once, what is left at most.
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

// chunks takes all that is buffered and fits, and reads from the connection only if that is
// nothing.
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
			if err := b.src.Fill(b.limit()); err != nil {
				_ = b.fail(err)
			}
		}
	}
}

// limit returns how much may be buffered before step can take something: more than any line may
// have.
func (b *Body) limit() int {
	if b.state == trailer {
		return MaxTrailerBytes
	}
	return size0
}

// step takes one thing of what is buffered, and returns how many bytes of the body that gave. It is
// hungry if it needs more bytes than are buffered.
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
	end := bytes.IndexByte(in[:min(len(in), MaxChunkLine)], '\n')
	if end < 0 {
		if len(in) >= MaxChunkLine {
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
		if b.extra += len(extension); b.extra > MaxExtensions {
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

// trailer reads what follows the last chunk, usually an empty line.
func (b *Body) trailer(in []byte) (hungry bool) {
	n := b.src.section()
	switch {
	case n > MaxTrailerBytes || n == 0 && len(in) >= MaxTrailerBytes:
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
	fields, refusal := fieldLines(nil, lines, 0, MaxTrailerFields)
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
