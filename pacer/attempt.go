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

// attempt sends a request once, within Options.AttemptTimeout: until its response's body has been
// read or closed.
func (t *Transport) attempt(base http.RoundTripper, r *http.Request) (*http.Response, error) {
	most := t.options.AttemptTimeout
	if most <= 0 {
		return base.RoundTrip(r)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	late := &attemptError{request: r.Method + " " + r.URL.Redacted(), most: most}
	timer := time.AfterFunc(most, func() { cancel(late) })
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
		timer.Stop() // the body is a connection, which lives as long as both sides like
		return response, nil
	}
	response.Body = &timedBody{response.Body, ctx, late, over}
	return response, nil
}

// A timedBody ends the time of an attempt with the body of its response.
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

// An attemptError says that one attempt took longer than Options.AttemptTimeout. It matches
// context.DeadlineExceeded, as the error of http.Client.Timeout does.
type attemptError struct {
	request string
	most    time.Duration
}

// instead returns the error of an attempt: e if its time was over, else err.
func (e *attemptError) instead(ctx context.Context, err error) error {
	if late := (*attemptError)(nil); errors.As(context.Cause(ctx), &late) {
		return late
	}
	return err
}

// Error says what was sent, and how long an answer may take.
func (e *attemptError) Error() string {
	return fmt.Sprintf("%s was sent, and its answer was not complete after %v: Options.AttemptTimeout allows no more", e.request, e.most)
}

// Is reports whether target is context.DeadlineExceeded.
func (e *attemptError) Is(target error) bool { return target == context.DeadlineExceeded }

// Timeout reports true.
func (e *attemptError) Timeout() bool { return true }

// Temporary reports true.
func (e *attemptError) Temporary() bool { return true }
