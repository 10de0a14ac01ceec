package relay

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/weirlimit/weir/internal/upstream"
	"github.com/weirlimit/weir/internal/wire"
)

// maxHeads is the size of the largest head of an answer, together with the interim ones before it,
// so that these end.
const maxHeads = 256 << 10

// Heads reads the heads of the answers to one request: the interim ones, and the final one. The
// zero value is ready for use.
type Heads struct {
	last []byte
	size int // of all
}

// Next reads one head from u. It is valid until the next call. The error is an *AnswerError if the
// heads are longer than is allowed.
func (h *Heads) Next(u *upstream.Conn) ([]byte, error) {
	for {
		if h.last = u.Reader.AppendResponseHead(h.last[:0]); len(h.last) > 0 {
			if h.size += len(h.last); h.size > maxHeads {
				return nil, errManyHeads
			}
			return h.last, nil
		}
		switch err := u.Reader.Fill(maxHeads); {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil, errNoAnswer
		case errors.Is(err, wire.ErrFull):
			return nil, errLongHead
		default:
			return nil, err
		}
	}
}

// Reset prepares for the next request. It keeps the memory of h if that is not larger than limit.
func (h *Heads) Reset(limit int) {
	if h.size = 0; cap(h.last) > limit {
		h.last = nil
	}
}

// Parse reads a head into an answer to a request of that method. The error is an *AnswerError.
func Parse(into *wire.Response, head, method string) error {
	err := into.Parse(head, method)
	if err == nil {
		return nil
	}
	var refusal *wire.Refusal
	if errors.As(err, &refusal) {
		return &AnswerError{refusal}
	}
	return err
}

var (
	errNoAnswer  = errors.New("the connection was closed before an answer came")
	errManyHeads = &AnswerError{&wire.Refusal{Status: http.StatusBadGateway, Reason: "more interim answers than are allowed"}}
	errSwitched  = &AnswerError{&wire.Refusal{Status: http.StatusBadGateway, Reason: "a switch to a protocol that the request did not ask for"}}
	errLongHead  = &AnswerError{&wire.Refusal{Status: http.StatusBadGateway, Reason: "a head of more than 256 KiB"}}
)

// An AnswerError is why an upstream's answer is not valid.
type AnswerError struct{ *wire.Refusal }

func (e *AnswerError) Error() string { return "its answer is not valid HTTP/1.1: " + e.Reason }
func (e *AnswerError) Unwrap() error { return e.Refusal }

// HasCome reports whether some of the answer's body can be read without a wait. It may be false for
// such a body, too. Call it before Read.
func (c *Call) HasCome() bool {
	in := c.conn.Reader.Buffered()
	if c.Answer.Length == wire.Chunked { // the line with the first chunk's size, and more
		line := bytes.IndexByte(in, '\n')
		return line >= 0 && line+1 < len(in)
	}
	return len(in) > 0
}

// Read reads the body of the answer. An upstream that is silent for too long ends it with a
// time-out. The last bytes come with io.EOF if their end is known.
func (c *Call) Read(p []byte) (int, error) {
	switch {
	case c.body.Done(), c.conn.Reader.Len() > 0: // nothing is awaited, or something has come
	case c.Answer.Length > 0:
		c.conn.AwaitBody(time.Now())
	default:
		c.conn.AwaitPiece(time.Now())
	}
	n, err := c.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		c.logBroken(err)
	}
	return n, err
}

// logBroken logs that the answer broke off, unless the client has gone.
func (c *Call) logBroken(err error) {
	if l := c.upload; l != nil {
		select {
		case <-l.done:
			if l.received != nil {
				return // the client has gone, and the connection was closed for that
			}
		default:
		}
	}
	if c.ctx.Err() != nil || c.Log == nil {
		return
	}
	c.Log.Warn("the upstream's answer ended early", "method", c.Method, "upstream", c.At.String(), "error", err)
}

// AnswerTrailers returns the trailers of the answer, once Read has returned io.EOF.
func (c *Call) AnswerTrailers() []wire.Field { return c.body.Trailers() }
