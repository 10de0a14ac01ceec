package wire

// A Body reads the body of one message from the message's Reader. The zero value is one of no bytes. It is for one goroutine
// at a time.
type Body struct {
	src      *Reader
	left     int64 // of a known length, or of the chunk
	length   int64
	state    uint8
	trailers []Field
	extra    int // bytes of chunk extensions so far
	err      error
}

// Reset makes b the body of the next message: length is Request.Length or Response.Length.
func (b *Body) Reset(src *Reader, length int64) { panic("not yet") }

// Read returns the next bytes of the body without its framing, and io.EOF behind the last one (at once with the last bytes of
// a known length). It reads nothing beyond the body. A body that breaks off is io.ErrUnexpectedEOF; one whose framing is
// wrong is a *Refusal. Errors stay.
func (b *Body) Read(p []byte) (int, error) { panic("not yet") }

// Done reports whether the body was read to its end, trailers included: only then may the connection be used again.
func (b *Body) Done() bool { panic("not yet") }

// Trailers are the field lines behind the last chunk, once Done: their names are none of framing, routing, authentication or
// the message's own (RFC 9110, section 6.5.1: those are a *Refusal).
func (b *Body) Trailers() []Field { return b.trailers }
