package http2

import "golang.org/x/net/http2"

// The windows of what clients send: the memory that one stream, and one connection, can hold.
const (
	streamWindow = 256 << 10
	connWindow   = 1 << 20
	usualWindow  = 65_535 // RFC 9113, section 6.9.2
	largestFrame = 16 << 10
)

// receiving is flow control of what the client sends on a connection. The mutex guards it.
type receiving struct {
	left   int64 // how much more the client may send
	credit int64 // of it, what was read and not returned
}

func (r *receiving) begin() { r.left = connWindow }

// take records that a frame of data has come for a stream, or for none. The error ends the
// connection, or the stream. The mutex is held.
func (c *conn) take(s *stream, n int64) error {
	if c.left -= n; c.left < 0 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	if s == nil {
		return nil
	}
	if s.left -= n; s.left < 0 {
		c.giveBack(n)
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeFlowControl}
	}
	return nil
}

// giveBack returns the window of n bytes that are not held any more to the connection. The client
// gets it by quarters, which saves frames. The mutex is held.
func (c *conn) giveBack(n int64) {
	if c.credit += n; c.credit < connWindow/4 {
		return
	}
	c.appendWindowUpdate(0, uint32(c.credit))
	c.left += c.credit
	c.credit = 0
}

// giveBack returns the window of n bytes to the stream and to its connection. The mutex is held.
func (s *stream) giveBack(n int64) {
	s.c.giveBack(n)
	if s.ended || s.gone {
		return
	}
	if s.credit += n; s.credit < streamWindow/4 {
		return
	}
	s.c.appendWindowUpdate(s.id, uint32(s.credit))
	s.left += s.credit
	s.credit = 0
}

// closeBody records that the stream's body has ended, or that nobody reads it any more. The mutex
// is held.
func (s *stream) closeBody() {
	if s.counted {
		s.counted = false
		s.c.paced.Uploads().CloseBody(s.c.paced.Received())
	}
}
