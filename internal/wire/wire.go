// Package wire reads and writes the messages of HTTP/1.1 (RFC 9110, RFC 9112) for the gateway's
// fast engine: strictly, so that every backend reads what is accepted here in the same way. It
// knows syntax alone: no time-outs, no routes, no limiters, no error bodies. It imports the
// standard library only.
//
//	wire.go      fields, refusals, limits
//	malformed.go everything that is refused: one table
//	syntax.go    bytes, tokens, field lines
//	request.go   the head of a request
//	http2.go     the head of a request of HTTP/2, as fields
//	response.go  the head of a response
//	framing.go   how both frame the body, and the connection
//	host.go      what a Host may be
//	reader.go    a connection's buffered bytes: heads are cut out of it, bodies read through it
//	body.go      bodies: of a known length, chunked with trailers, until the end of the connection
//	trailer.go   which fields may follow a body
//	append.go    lines and chunks, written
package wire

import "fmt"

// The lengths of bodies whose number of bytes is not known.
const (
	Chunked    int64 = -1 // chunks, and perhaps trailers
	UntilClose int64 = -2 // of a response: everything until the connection ends
)

// A Field is one field line: the name as it was sent, the value without the blanks around it.
type Field struct{ Name, Value string }

// A Refusal is why a message is not what RFC 9110 and RFC 9112 allow. Nothing more of the
// connection can be read after one, because where the next message would begin is not known.
type Refusal struct {
	// of a server's answer: 400, 417, 431, 501, 505; 502 if the head of a response is refused
	Status int
	Reason string // lower case, without what was sent: it is shown to the sender and may be logged
}

// Error returns the status and the reason.
func (e *Refusal) Error() string { return fmt.Sprintf("refused with %d: %s", e.Status, e.Reason) }

// Limits of one message, beside the length of its head, which Reader.Fill limits.
const (
	MaxFields = 200 // field lines of a head
	// connection options of a head, "close" and "keep-alive" not counted
	MaxNamed         = 64
	MaxChunkLine     = 256      // bytes of a chunk's size and extensions, with the line's end
	MaxExtensions    = 16 << 10 // bytes of all chunk extensions of a body
	MaxTrailerBytes  = 8 << 10  // of all trailer lines
	MaxTrailerFields = 32
)
