package std

import (
	"net/http"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// streamPiece is the most of an HTTP/2 stream that one deadline covers.
const streamPiece = 8 << 10

// writeStream writes to an HTTP/2 stream, at the least rate. The server holds back up to 4 KiB: until then nothing can stall.
func (x *exchange) writeStream(p []byte) (n int, err error) {
	limits := &x.engine.AnswerPace
	for {
		piece := p[n:min(len(p), n+streamPiece)]
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
			c.Answers.Await(limits, began, c.Accepted())
		}
		m, err := x.ResponseWriter.Write(piece)
		done()
		now := time.Now()
		goesOn := x.taken.Spend(limits, now.Sub(began), m)
		if c != nil {
			goesOn = c.Answers.EndAwait(limits, now, c.Accepted()) || goesOn
		}
		if n += m; err == nil && !x.explicit.Load() && !goesOn {
			err = pace.ErrTooSlow
		}
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// paceStream gives one write to an HTTP/2 stream a deadline: a peer that reads the connection can still starve a stream
// of its window. Between writes there is none, so that a quiet stream lives. (HTTP/1 is paced by its connection.)
func (x *exchange) paceStream() (done func()) {
	if x.explicit.Load() {
		return func() {}
	}
	deadline := http.NewResponseController(x.ResponseWriter)
	_ = deadline.SetWriteDeadline(time.Now().Add(x.engine.Limits.Take))
	return func() { _ = deadline.SetWriteDeadline(time.Time{}) }
}

// SetWriteDeadline is how http.ResponseController puts a handler's own deadline in the place of the pace; the zero time
// brings the pace back.
func (x *exchange) SetWriteDeadline(t time.Time) error {
	x.explicit.Store(!t.IsZero())
	return http.NewResponseController(x.ResponseWriter).SetWriteDeadline(t)
}
