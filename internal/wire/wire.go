// Package wire reads and writes the messages of HTTP/1.1 (RFC 9110, RFC 9112) for the gateway's fast engine: strictly, so that
// whatever is let through here is read the same way by everybody behind. It knows syntax alone: no sockets' time-outs, no
// routes, no limiters, no error bodies. It imports the standard library only.
//
//	wire.go      the words: fields, refusals, limits
//	syntax.go    bytes, tokens, field lines
//	request.go   the head of a request
//	response.go  the head of a response
//	framing.go   what both say of the body and of the connection
//	host.go      what a Host may be
//	reader.go    a connection's buffered bytes: heads are cut out of it, bodies read through it
//	body.go      bodies: of a known length, chunked with trailers, until the end of the connection
//	trailer.go   what may stand behind a body
//	append.go    lines, chunks and numbers on their way out
package wire

import "fmt"

// The lengths of bodies that are no number of bytes.
const (
	Chunked    int64 = -1 // chunks, and trailers perhaps
	UntilClose int64 = -2 // of a response: what comes until the connection ends
)

// A Field is one field line: the name as it was spelled, the value without the blanks around it.
type Field struct{ Name, Value string }

// A Refusal says why a message is not what RFC 9110 and RFC 9112 allow. Nothing more of the connection can be read after
// one: nobody knows where the next message would begin.
type Refusal struct {
	Status int    // that a server answers: 400, 417, 431, 501, 505; 502 where the head of a response is refused
	Reason string // lower case, without what was sent: it is shown to the sender and may be logged
}

// Error gives the status and the reason.
func (e *Refusal) Error() string { return fmt.Sprintf("refused with %d: %s", e.Status, e.Reason) }

// Bounds of what one message may ask for beside its head's length, which is the Reader's.
const (
	MostFields        = 200      // field lines of a head
	MostNamed         = 64       // connection options of a head, "close" and "keep-alive" not counted
	MostChunkLine     = 256      // bytes of a chunk's size and extensions, with the line's end
	MostExtensions    = 16 << 10 // bytes of all chunk extensions of a body
	MostTrailerBytes  = 8 << 10  // of all trailer lines
	MostTrailerFields = 32
)
