package pacer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// attempt sends a request once, within Options.AttemptTimeout, which ends when the response's body
// has been read or closed.
func (t *Transport) attempt(base http.RoundTripper, r *http.Request) (*http.Response, error) {
	timeout := t.options.AttemptTimeout
	if timeout <= 0 {
		return base.RoundTrip(r)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	late := &attemptError{request: r.Method + " " + r.URL.Redacted(), timeout: timeout}
	timer := time.AfterFunc(timeout, func() { cancel(late) })
	over := sync.OnceFunc(func() {
		timer.Stop()
		cancel(nil)
	})
	response, err := base.RoundTrip(r.WithContext(ctx))
	if err != nil {
		err = late.instead(ctx, err)
		over()
		return nil, err
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		timer.Stop() // the body is a connection, which may outlive the attempt
		return response, nil
	}
	response.Body = &timedBody{response.Body, ctx, late, over}
	return response, nil
}

// A timedBody ends an attempt when the body of its response has been read or closed.
type timedBody struct {
	io.ReadCloser
	ctx  context.Context
	late *attemptError
	over func()
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil {
		return n, nil
	}
	if err != io.EOF {
		err = b.late.instead(b.ctx, err)
	}
	b.over()
	return n, err
}

func (b *timedBody) Close() error {
	defer b.over()
	return b.ReadCloser.Close()
}

// An attemptError means that one attempt took longer than Options.AttemptTimeout. Like the error of
// http.Client.Timeout, it matches context.DeadlineExceeded.
type attemptError struct {
	request string
	timeout time.Duration
}

// instead returns the error of an attempt: an attemptError for an attempt that was too late, else
// err.
func (e *attemptError) instead(ctx context.Context, err error) error {
	if late := (*attemptError)(nil); errors.As(context.Cause(ctx), &late) {
		return late
	}
	return err
}

// Error names the request and the time-out.
func (e *attemptError) Error() string {
	return fmt.Sprintf("%s was sent, and its answer was not complete after %v: Options.AttemptTimeout allows no more", e.request, e.timeout)
}

// Is reports whether target is context.DeadlineExceeded.
func (e *attemptError) Is(target error) bool { return target == context.DeadlineExceeded }

func (e *attemptError) Timeout() bool { return true }

func (e *attemptError) Temporary() bool { return true }
