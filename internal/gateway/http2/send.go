package http2

import (
	"os"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// A sender sends the body of one answer, at the pace of its client: a client that closes the
// windows of its streams is ended as one that does not read its connection. All streams of a
// connection count as one client (pace.Direction). The zero value is ready for use.
type sender struct {
	taken pace.Allowance // begins with the first wait
	begun bool
}

// send appends p to what is written to the client, and its end too if ends. It waits until the
// client takes it, by frames: so the bodies of a connection take turns.
func (x *exchange) send(p []byte, ends bool) error {
	c, s := x.c, x.s
	for {
		c.mu.Lock()
		n, err := s.sendable(len(p))
		if err != nil {
			c.mu.Unlock()
			return err
		}
		if n > 0 || len(p) == 0 {
			last := ends && n == len(p)
			c.appendData(s.id, p[:n], last)
			c.window -= int64(n)
			s.window -= int64(n)
			c.bounds.sent(n)
			if last {
				x.end()
			}
			p = p[n:]
			c.mu.Unlock()
			if x.pace.begun {
				x.pace.taken.Spend(&c.engine.AnswerPace, 0, n)
			}
			if len(p) == 0 {
				return nil
			}
			continue
		}
		starved := s.window <= 0 || c.window <= 0
		if !starved && c.isReady() { // the buffer is full
			c.mu.Unlock()
			c.flush()
			continue
		}
		if s.writable == nil {
			s.writable = make(chan struct{}, 1)
		}
		select {
		case <-s.writable: // of an earlier wait
		default:
		}
		if !s.waits {
			s.waits = true
			c.waiting = append(c.waiting, s)
		}
		c.mu.Unlock()
		c.flush()
		if err := x.awaitClient(starved); err != nil {
			return err
		}
	}
}

// leastPiece is the size of the smallest frame into which a body is divided to fill the buffer.
const leastPiece = 1 << 10

// sendable returns how many of n bytes may be appended now. The mutex is held.
func (s *stream) sendable(n int) (int, error) {
	c := s.c
	switch {
	case s.gone:
		return 0, errGone
	case c.broken != nil:
		return 0, c.broken
	}
	room := maxBodies - frameHeader - len(c.out)
	if room < min(n, leastPiece) {
		return 0, nil
	}
	return max(0, min(n, room, largestFrame, c.maxFrame, int(s.window), int(c.window))), nil
}

// awaitClient waits until the client has taken something. starved is true if a window is closed,
// rather than that the socket takes nothing, which has times of its own.
func (x *exchange) awaitClient(starved bool) error {
	c, limits := x.c, &x.c.engine.AnswerPace
	if !x.pace.begun {
		x.pace.begun = true
		x.pace.taken.Begin(limits)
	}
	began := time.Now()
	if c.paced != nil {
		c.paced.Answers().Await(limits, began, c.paced.Accepted())
	}
	var late <-chan time.Time
	if starved {
		timer := time.NewTimer(limits.Take)
		defer timer.Stop()
		late = timer.C
	}
	stalled := false
	select {
	case <-x.s.writable:
	case <-late:
		stalled = true
	}
	now := time.Now()
	continues := x.pace.taken.Spend(limits, now.Sub(began), 0)
	if c.paced != nil {
		continues = c.paced.Answers().EndAwait(limits, now, c.paced.Accepted()) || continues
	}
	switch {
	case stalled:
		return os.ErrDeadlineExceeded
	case !continues:
		return pace.ErrTooSlow
	}
	return nil
}
