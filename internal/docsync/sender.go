package docsync

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// A Sender is the transport below all waiting. A request that reaches it is in flight: it is no longer cut when its context
// ends, only when it takes too long. One whose context has ended already is not sent. It counts what it sends.
type Sender struct {
	Base    http.RoundTripper // nil means http.DefaultTransport
	Timeout time.Duration     // of one request, its answer's body included; 0 means 5 minutes

	sent atomic.Int64
}

// Sent returns how many requests were sent.
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
	response, err := base.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = &timed{response.Body, cancel}
	return response, nil
}

// A timed body lets go of its time-out when it is closed.
type timed struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (t *timed) Close() error {
	defer t.cancel()
	return t.ReadCloser.Close()
}
