package accesslog

import (
	"errors"
	"io"
)

// ErrStopped means that Options.Stop was closed while a log had nothing to read.
var ErrStopped = errors.New("stopped while it was waited for")

// A stoppable reader reads from a pipe, which may block for long, until stop is closed.
type stoppable struct {
	from io.Reader
	stop <-chan struct{}
	room []byte // an abandoned read may still write to it
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

// await returns the result of do, unless stop is closed first. A blocked read of a pipe cannot be
// cancelled: its goroutine is abandoned and ends with the pipe or the process.
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
