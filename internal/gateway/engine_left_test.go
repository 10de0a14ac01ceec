package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
)

// A slowStore is a shared store that answers only when released, or when its
// context ends.
type slowStore struct {
	asked    chan bool
	released chan bool
	canceled atomic.Int64 // takes whose context was canceled, not expired
}

func (s *slowStore) Take(ctx context.Context, charges []weir.Charge, receipt *weir.Receipt) error {
	s.asked <- true
	select {
	case <-s.released:
		receipt.Allowed, receipt.Now = true, time.Now().Unix()
		for i := range charges {
			receipt.Used[i] = weir.Used{Count: 1, Reset: receipt.Now + 60}
		}
		return nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			s.canceled.Add(1)
		}
		return ctx.Err()
	}
}

// waiting makes the limiter wait for the store for at most that long, and refuse if
// there is no answer.
func (s *slowStore) waiting(t testing.TB, most time.Duration, failed *atomic.Int64) func(*Options) {
	t.Helper()
	w, err := weir.ParseWindow("100 per hour by ip")
	if err != nil {
		t.Fatal(err)
	}
	route, err := weir.ParseRoute("/*")
	if err != nil {
		t.Fatal(err)
	}
	p := weir.Policy{Limiters: []weir.Limiter{{Name: "all", Routes: []weir.Route{route}, Windows: []weir.Window{w}, OnStoreFailure: weir.FailDeny}}}
	store, err := failover.New(s, nil, failover.Options{Deadline: most, OnTake: func(_ time.Duration, err error) {
		if err != nil {
			failed.Add(1)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := weir.New(p, store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.Decider = d }
}

// If a client goes away while the limiter waits for its store, the access log has
// 499, for any answer of the store. The take continues, and does not count as a
// failure of the store.
func TestAClientThatLeavesDuringATakeIs499(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	for name, before := range map[string]bool{"an upstream": true, "a backend": false} {
		for _, answers := range []bool{true, false} {
			for _, over2 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, the store answers %v, HTTP/2 %v", name, answers, over2), func(t *testing.T) {
					leavesDuringATake(t, before, answers, over2)
				})
			}
		}
	}
}

func leavesDuringATake(t *testing.T, before, answers, over2 bool) {
	store := &slowStore{asked: make(chan bool, 1), released: make(chan bool)}
	deadline := time.Minute
	if !answers {
		deadline = 300 * time.Millisecond
	}
	var failed atomic.Int64
	quiet := func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
	e := open(t, http.HandlerFunc(quiet), func(o *Options) {
		store.waiting(t, deadline, &failed)(o)
		if before {
			behind(t, quiet)(o)
		}
	})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	left := make(chan bool)
	client := &http.Client{Transport: &http.Transport{}}
	if over2 {
		client = h2c(t)
	}
	go func() {
		defer close(left)
		r, err := http.NewRequestWithContext(ctx, "GET", e.url("/v1/wp/quiet"), nil)
		if err != nil {
			t.Error(err)
			return
		}
		if res, err := client.Do(r); err == nil {
			res.Body.Close()
			t.Errorf("it is answered %d", res.StatusCode)
		}
	}()
	<-store.asked
	leave()
	<-left
	if answers {
		close(store.released)
	}
	eventually(t, "the request ends", func() bool { return e.gateway.InFlight() == 0 })
	e.stop()
	if line := e.access.String(); !strings.Contains(line, "status=499") || strings.Count(line, "\n") != 1 {
		t.Errorf("access log %q, want 499", line)
	}
	if n := failed.Load(); answers && n != 0 {
		t.Errorf("%d takes failed at a store that answered", n)
	}
	if n := store.canceled.Load(); n != 0 {
		t.Errorf("%d takes were canceled", n)
	}
}

// If a client leaves during its upload, that is 499, too, with a backend in this
// process and over HTTP/2.
func TestAClientThatLeavesDuringAnUploadIs499(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	read := func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil && r.Context().Err() == nil {
			bodyFailed(w, err)
		} else if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable) // as a canceled backend answers
		}
	}
	for name, before := range map[string]bool{"an upstream": true, "a backend": false} {
		for _, over2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", name, over2), func(t *testing.T) {
				begun := make(chan bool, 1)
				reading := func(w http.ResponseWriter, r *http.Request) {
					begun <- true // net/http holds the first bytes of the body back
					read(w, r)
				}
				e := open(t, http.HandlerFunc(reading), func(o *Options) {
					if before {
						behind(t, reading)(o)
					}
				})
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				client := &http.Client{Transport: &http.Transport{}}
				if over2 {
					client = h2c(t)
				}
				body, sends := io.Pipe()
				defer sends.Close()
				left := make(chan bool)
				go func() {
					defer close(left)
					r, err := http.NewRequestWithContext(ctx, "POST", e.url("/v1/wp/x"), body)
					if err != nil {
						t.Error(err)
						return
					}
					if res, err := client.Do(r); err == nil {
						res.Body.Close()
					}
				}()
				_, _ = sends.Write([]byte("half"))
				within(t, patience, "the request arrives", begun)
				leave()
				_ = sends.CloseWithError(context.Canceled)
				within(t, patience, "the client leaves", left)
				eventually(t, "the request ends", func() bool { return e.gateway.InFlight() == 0 })
				e.stop()
				if line := e.access.String(); !strings.Contains(line, "status=499") || strings.Count(line, "\n") != 1 {
					t.Errorf("access log %q, want 499", line)
				}
			})
		}
	}
}
