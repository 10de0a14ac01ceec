package pacer_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/pacer"
)

// http.Client.Timeout includes the wait, and cannot be extended. The call fails at
// once with an error that explains this, and http.Client does not replace it.
func TestATooShortClientTimeoutFailsAtOnce(t *testing.T) {
	spentUp := map[string]string{"Date": "now", "X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "now+60"}
	for name, replies := range map[string][]reply{
		"a budget that is spent": {{status: 200, header: spentUp}},
		"a 429":                  {{status: 200}, {status: 429, header: with(spentUp, "Retry-After", "60")}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &script{replies: replies}
				client := &http.Client{Transport: pacer.New(&pacer.Options{Base: s}), Timeout: 10 * time.Second}
				response, err := client.Do(get(t))
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
				began := time.Now()
				_, err = client.Do(get(t))
				if took := time.Since(began); took > 10*time.Millisecond {
					t.Errorf("it took %v", took)
				}
				wantTimeout(t, err, 10*time.Second, 60*time.Second)
			})
		})
	}
}

// wantTimeout checks an error of http.Client: it is still a *WaitError, and reports
// a timeout by each method.
func wantTimeout(t *testing.T, err error, deadline, until time.Duration) {
	t.Helper()
	wait := asWait(t, err)
	var outer *url.Error
	if !errors.As(err, &outer) || !outer.Timeout() {
		t.Errorf("%v is %T, and its Timeout returns %v", err, err, outer != nil && outer.Timeout())
	}
	if timeout, ok := error(wait).(net.Error); !ok || !timeout.Timeout() || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is not a timeout", err)
	}
	if left := time.Until(wait.Deadline); left < 0 || left > deadline {
		t.Errorf("the deadline is in %v, want at most %v", left, deadline)
	}
	if left := time.Until(wait.Until); left > until+time.Second || left <= time.Until(wait.Deadline) {
		t.Errorf("come back in %v, want about %v", left, until)
	}
	for _, part := range []string{"was not sent", "would wait", "http.Client.Timeout", "Options.AttemptTimeout", wait.Until.Format("15:04:05"), wait.Deadline.Format("15:04:05")} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not contain %q", err, part)
		}
	}
}

// If it was not known that the wait would be too long, the call fails before
// http.Client gives up and replaces the error.
func TestAClientTimeoutDuringAWaitIsReportedAsSuch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		never := make(chan struct{})
		p := pacer.New(&pacer.Options{Base: doer(func(r *http.Request) (*http.Response, error) {
			<-never
			return nil, errors.New("gone")
		})})
		first := make(chan error)
		go func() { // the first request; the others wait for its answer
			_, err := p.RoundTrip(get(t))
			first <- err
		}()
		pass(time.Millisecond)
		for range 2 { // the first of the queue, and one after it
			go func() {
				client := &http.Client{Transport: p, Timeout: 900 * time.Millisecond}
				_, err := client.Do(get(t))
				first <- err
			}()
		}
		for range 2 {
			err := <-first
			wait := asWait(t, err)
			if !wait.Timeout() || !strings.Contains(err.Error(), "http.Client.Timeout") || !time.Now().Before(wait.Deadline) {
				t.Errorf("%v at %v", err, time.Now())
			}
		}
		close(never)
		<-first
	})
}

// AttemptTimeout bounds the attempt, but not the wait.
func TestAnAttemptTimeoutExcludesTheWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, policy("10 per minute by token or ip"), 0)
		p := pacer.New(&pacer.Options{Base: w, AttemptTimeout: 2 * time.Second})
		took := w.spend(3*usable(10), 4, &through{&http.Client{Transport: p}})
		if took < 2*time.Minute-time.Second {
			t.Errorf("three windows took %v", took)
		}
		w.once(3 * usable(10))
	})
}

// through is an http.Client as a RoundTripper.
type through struct{ *http.Client }

func (c *through) RoundTrip(r *http.Request) (*http.Response, error) { return c.Do(r) }

func TestAnAttemptThatTakesTooLongEnds(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow-head":
			<-hang
		case "/slow-body":
			io.WriteString(rw, "the beginning")
			rw.(http.Flusher).Flush()
			<-hang
		default:
			io.WriteString(rw, "all of it")
		}
	}))
	defer server.Close()
	defer close(hang)
	client := &http.Client{Transport: pacer.New(&pacer.Options{AttemptTimeout: 250 * time.Millisecond})}
	defer client.CloseIdleConnections()
	for path, want := range map[string]string{"/": "all of it", "/slow-body": "the beginning"} {
		response, err := client.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if string(text) != want || (err != nil) != (path == "/slow-body") {
			t.Errorf("%s: %q, %v", path, text, err)
		}
		if err != nil {
			wantLate(t, err)
		}
	}
	_, err := client.Get(server.URL + "/slow-head")
	wantLate(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", server.URL+"/slow-head", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Do(r); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was cancelled ends with %v", err)
	}
}

func wantLate(t *testing.T, err error) {
	t.Helper()
	var late net.Error
	if !errors.As(err, &late) || !late.Timeout() || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "Options.AttemptTimeout") {
		t.Errorf("the error is %v", err)
	}
	var wait *pacer.WaitError
	if errors.As(err, &wait) {
		t.Errorf("%v claims that nothing was sent", err)
	}
}

// If a connection has switched protocols, it outlives its attempt.
func TestAConnectionThatSwitchesProtocolsOutlivesItsAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var sent *http.Request
		near, far := net.Pipe()
		defer far.Close()
		p := pacer.New(&pacer.Options{AttemptTimeout: time.Second, Base: doer(func(r *http.Request) (*http.Response, error) {
			sent = r
			return &http.Response{StatusCode: 101, Header: http.Header{}, Body: near}, nil
		})})
		response, err := p.RoundTrip(get(t))
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if err := sent.Context().Err(); err != nil {
			t.Errorf("after a minute its context is over: %v", err)
		}
		if _, ok := response.Body.(io.Writer); !ok {
			t.Errorf("its body is a %T, which cannot be written to", response.Body)
		}
		response.Body.Close()
	})
}
