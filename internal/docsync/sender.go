package docsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// A Sender is the innermost transport, below all pacing. A request that reaches it is in flight: it
// is not aborted when its context ends, only when it exceeds the time-out. A request whose context
// has already ended is not sent. The Sender counts the requests that it sends.
type Sender struct {
	Base http.RoundTripper // nil means http.DefaultTransport
	// for one request, including the body of its answer; 0 means 5 minutes
	Timeout time.Duration

	sent atomic.Int64
}

// Sent returns the number of requests sent. It is safe for concurrent use.
func (s *Sender) Sent() int64 { return s.sent.Load() }

// RoundTrip implements http.RoundTripper.
func (s *Sender) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	base, timeout := s.Base, s.Timeout
	if base == nil {
		base = http.DefaultTransport
	}
	if timeout == 0 {
		timeout = 5 * time.Minute
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), timeout)
	s.sent.Add(1)
	r = r.WithContext(ctx)
	up := &upload{ReadCloser: r.Body}
	if r.Body != nil && r.ContentLength > 0 {
		up.left.Store(r.ContentLength)
		r.Body = up
	}
	response, err := base.RoundTrip(r)
	if err != nil {
		if left := up.left.Load(); left > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = &slowError{timeout, r.ContentLength - left, r.ContentLength}
		}
		cancel()
		return nil, err
	}
	response.Body = &timed{response.Body, cancel}
	return response, nil
}

// An upload counts the bytes of a request's body that are not yet read.
type upload struct {
	io.ReadCloser
	left atomic.Int64
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	u.left.Add(-int64(n))
	return n, err
}

// A slowError means that a request could not be sent within the time-out.
type slowError struct {
	timeout     time.Duration
	sent, bytes int64
}

func (e *slowError) Error() string {
	return fmt.Sprintf("only %d of %d bytes were sent within %v", e.sent, e.bytes, e.timeout)
}

func (e *slowError) Unwrap() error { return context.DeadlineExceeded }

// A timed body cancels its time-out when it is closed.
type timed struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (t *timed) Close() error {
	defer t.cancel()
	return t.ReadCloser.Close()
}
