package accesslog

import (
	"errors"
	"io"
)

// ErrStopped is what a log ends with that had nothing to read when Options.Stop was closed.
var ErrStopped = errors.New("stopped while it was waited for")

// stoppable reads of what may have nothing for long, a pipe, until stop is closed.
type stoppable struct {
	from io.Reader
	stop <-chan struct{}
	room []byte // that a read which was given up may still fill
	over bool
}

func (s *stoppable) Read(b []byte) (int, error) {
	if s.over {
		return 0, ErrStopped
	}
	if s.room == nil {
		s.room = make([]byte, 64<<10)
	}
	type result struct {
		n   int
		err error
	}
	room := s.room[:min(len(b), len(s.room))]
	read, ok := await(s.stop, func() result {
		n, err := s.from.Read(room)
		return result{n, err}
	})
	if !ok {
		s.over = true
		return 0, ErrStopped
	}
	return copy(b, room[:read.n]), read.err
}

// await returns what do returns, unless stop is closed before. Nothing can end a read of a pipe that has nothing: its goroutine is
// left behind then, and ends with the pipe or the process.
func await[T any](stop <-chan struct{}, do func() T) (result T, ok bool) {
	done := make(chan T, 1)
	go func() { done <- do() }()
	select {
	case result = <-done:
		return result, true
	case <-stop:
		return result, false
	}
}
