package std

import (
	"net/http"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// maxStreamPiece is the size of the largest write to an HTTP/2 stream that one deadline covers.
const maxStreamPiece = 8 << 10

// writeStream writes to an HTTP/2 stream, at the minimum rate. The server buffers up to 4 KiB:
// until then nothing can stall.
func (x *exchange) writeStream(p []byte) (n int, err error) {
	limits := &x.engine.AnswerPace
	for {
		piece := p[n:min(len(p), n+maxStreamPiece)]
		if x.pending += len(piece); x.pending < 4<<10 {
			m, err := x.ResponseWriter.Write(piece)
			return n + m, err
		}
		x.pending = 0
		if x.taken == (pace.Allowance{}) {
			x.taken.Begin(limits)
			x.conn = pace.ConnOf(x.request.Context())
		}
		c := x.conn
		began, done := time.Now(), x.paceStream()
		if c != nil {
			c.Answers().Await(limits, began, c.Accepted())
		}
		m, err := x.ResponseWriter.Write(piece)
		done()
		now := time.Now()
		continues := x.taken.Spend(limits, now.Sub(began), m)
		if c != nil {
			continues = c.Answers().EndAwait(limits, now, c.Accepted()) || continues
		}
		if n += m; err == nil && !x.explicit.Load() && !continues {
			err = pace.ErrTooSlow
		}
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// paceStream gives one write to an HTTP/2 stream a deadline, because a client that reads the
// connection can still close the window of a stream. Between writes there is none, so that a quiet
// stream lives. (HTTP/1 has the deadlines of its connection.)
func (x *exchange) paceStream() (done func()) {
	if x.explicit.Load() {
		return func() {}
	}
	deadline := http.NewResponseController(x.ResponseWriter)
	_ = deadline.SetWriteDeadline(time.Now().Add(x.engine.Limits.Take))
	return func() { _ = deadline.SetWriteDeadline(time.Time{}) }
}

// SetWriteDeadline is for http.ResponseController. A handler's own deadline replaces those of
// paceStream, until it sets the zero time.
func (x *exchange) SetWriteDeadline(t time.Time) error {
	x.explicit.Store(!t.IsZero())
	return http.NewResponseController(x.ResponseWriter).SetWriteDeadline(t)
}
