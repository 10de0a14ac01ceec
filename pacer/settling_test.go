package pacer_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/pacer"
)

// A settlingServer reserves, and settles when the body of its answer has been read.
type settlingServer struct {
	t       *testing.T
	decider *weir.Decider
	costs   func(call int) int64 // what a call has cost
	inHead  bool                 // the head of the answer reports the cost, and it is settled
	lasts   func() time.Duration // how long its body lasts

	mu       sync.Mutex
	calls    int
	refused  int
	inFlight int
	most     int // of inFlight
	spent    int64
	mayLose  bool // a call whose last answer is a refusal fails no test by itself
}

func newSettlingServer(t *testing.T, l weir.Limiter) (*settlingServer, *weir.Routes) {
	t.Helper()
	store, err := memstore.New(memstore.Options{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	p := weir.Policy{Limiters: []weir.Limiter{l}}
	decider, err := weir.New(p, store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	routes, err := weir.NewRoutes(p)
	if err != nil {
		t.Fatal(err)
	}
	return &settlingServer{t: t, decider: decider}, routes
}

type oneCaller struct{}

func (oneCaller) AppendKey(dst []byte, source string) ([]byte, bool) {
	return append(dst, '1'), source == "ip"
}

// An agentCaller is the caller with its agent.
type agentCaller string

func (c agentCaller) AppendKey(dst []byte, source string) ([]byte, bool) {
	if source == "agent" {
		return append(dst, c...), true
	}
	return oneCaller{}.AppendKey(dst, source)
}

func (s *settlingServer) RoundTrip(r *http.Request) (*http.Response, error) {
	pass(time.Millisecond)
	var scratch weir.Scratch
	d, err := s.decider.Decide(context.Background(), weir.Request{Method: r.Method, Path: r.URL.Path, Keys: agentCaller(r.UserAgent()), Scratch: &scratch})
	if err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	cost := int64(0)
	if d.Allowed {
		if cost = s.costs(s.calls); s.inHead {
			s.decider.Spent(context.Background(), &scratch, cost, &d)
		}
	}
	b := d.Binding()
	h := http.Header{}
	h.Set("Date", time.Unix(d.Now, 0).UTC().Format(http.TimeFormat))
	h.Set("X-RateLimit-Limit", strconv.FormatInt(b.Limit, 10))
	h.Set("X-RateLimit-Remaining", strconv.FormatInt(b.Remaining, 10))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(b.Reset, 10))
	response := &http.Response{StatusCode: http.StatusOK, Header: h, Request: r, Body: http.NoBody}
	if !d.Allowed {
		s.refused++
		h.Set("Retry-After", strconv.FormatInt(d.RetryAfter(), 10))
		response.StatusCode = http.StatusTooManyRequests
		return response, nil
	}
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	s.calls++
	s.spent += cost
	response.Body = &settlingBody{Reader: bytes.NewReader([]byte("answer")), lasts: s.lasts(), over: func() {
		s.mu.Lock()
		s.inFlight--
		s.mu.Unlock()
		s.decider.Spent(context.Background(), &scratch, cost, nil)
		s.decider.End(context.Background(), &scratch)
	}}
	return response, nil
}

// A settlingBody lasts some time. The server has settled when its last byte is read.
type settlingBody struct {
	io.Reader
	lasts time.Duration
	over  func()
}

func (b *settlingBody) Read(p []byte) (int, error) {
	pass(b.lasts)
	b.lasts = 0
	n, err := b.Reader.Read(p)
	if err != nil && b.over != nil {
		b.over()
		b.over = nil
	}
	return n, err
}

func (b *settlingBody) Close() error { return nil }

// call makes n calls by workers, and returns how long they took.
func (s *settlingServer) call(n, workers int, client http.RoundTripper) time.Duration {
	began := time.Now()
	jobs := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range jobs {
				r, _ := http.NewRequest("POST", "http://api.example.com/v1/chat", nil)
				response, err := client.RoundTrip(r)
				if err != nil {
					s.t.Error(err)
					continue
				}
				if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK && !s.mayLose {
					s.t.Errorf("status %d, reading: %v", response.StatusCode, err)
				}
				response.Body.Close()
			}
		})
	}
	for i := range n {
		jobs <- i
	}
	close(jobs)
	all.Wait()
	return time.Since(began)
}

func chat(window string) weir.Limiter {
	w, _ := weir.ParseWindow(window)
	route, _ := weir.ParseRoute("/v1/chat")
	actual, _ := weir.ParseReading("json:cost")
	return weir.Limiter{Name: "chat", Routes: []weir.Route{route}, Windows: []weir.Window{w}, Cost: 4000, Actual: actual}
}

func TestWhatComesBackIsUsedBeforeTheReset(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, routes := newSettlingServer(t, chat("100000 per day by ip"))
		s.costs = func(i int) int64 { return 80 + int64(i%5)*10 }
		s.lasts = func() time.Duration { return time.Second }
		took := s.call(500, 20, pacer.New(&pacer.Options{Base: s, Routes: routes}))
		if s.refused != 0 {
			t.Errorf("%d refusals", s.refused)
		}
		if s.calls != 500 || took > 10*time.Minute {
			t.Errorf("%d calls took %v: their %d units fit the day, so none waits for its end", s.calls, took, s.spent)
		}
		t.Logf("%v, at most %d in flight", took, s.most)
	})
}

// What is left is enough for three calls at a time. The calls behind them can start soon, because
// each gives most of its charge back, so none fails for a wait until the end of the day.
func TestCallsInTheQueueWaitForWhatTheCallsAheadGiveBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, routes := newSettlingServer(t, chat("14000 per day by ip"))
		s.costs = func(int) int64 { return 100 }
		s.lasts = func() time.Duration { return time.Second }
		took := s.call(20, 20, pacer.New(&pacer.Options{Base: s, Routes: routes}))
		if s.refused != 0 || s.calls != 20 || s.most != 3 {
			t.Errorf("%d calls, %d refusals, at most %d in flight: want 20, 0 and 3", s.calls, s.refused, s.most)
		}
		if took > time.Minute {
			t.Errorf("20 calls of a second, 3 at a time, took %v", took)
		}
	})
}

// The call that holds the whole budget was sent, but its response has not come. A refusal of
// another call has shown that nothing is left.
func TestACallWaitsForWhatACallWithoutAResponseMayGiveBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, routes := newSettlingServer(t, chat("8100 per day by ip"))
		s, _ := newSettlingServer(t, chat("4100 per day by ip")) // less than its file declares
		s.costs = func(int) int64 { return 100 }
		s.lasts = func() time.Duration { return time.Second }
		var sent atomic.Int64
		base := doer(func(r *http.Request) (*http.Response, error) {
			first := sent.Add(1) == 1
			response, err := s.RoundTrip(r)
			if first {
				pass(10 * time.Second)
			}
			return response, err
		})
		client := pacer.New(&pacer.Options{Base: base, Routes: routes})
		var all sync.WaitGroup
		all.Go(func() { s.call(1, 1, client) })
		pass(5 * time.Second)
		r, _ := http.NewRequest("POST", "http://api.example.com/v1/chat", nil)
		_, err := client.RoundTrip(r) // a second probe
		if wait := asWait(t, err); wait.Reason != pacer.Refused {
			t.Errorf("the second call: %v", err)
		}
		s.call(1, 1, client)
		all.Wait()
		if s.calls != 2 || s.refused != 1 {
			t.Errorf("%d calls were served and %d refused: want 2 and 1", s.calls, s.refused)
		}
	})
}

// The server has settled a call before the caller has read its answer to the end. What came back is
// in the next response, and is not expected a second time.
func TestWhatAResponseIncludesIsNotExpectedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, routes := newSettlingServer(t, chat("40000 per day by ip"))
		s.costs = func(i int) int64 { return 80 + int64(i%5)*10 }
		calls := 0
		s.lasts = func() time.Duration { // no two answers end at the same time
			calls++
			return time.Second + time.Duration(calls*37%100)*10*time.Millisecond
		}
		base := doer(func(r *http.Request) (*http.Response, error) {
			response, err := s.RoundTrip(r)
			if body, ok := response.Body.(*settlingBody); ok {
				time.AfterFunc(body.lasts-300*time.Millisecond, body.over)
				body.over = nil
			}
			return response, err
		})
		s.call(200, 20, pacer.New(&pacer.Options{Base: base, Routes: routes}))
		if s.refused != 0 || s.calls != 200 {
			t.Errorf("%d calls, %d refusals: want 200 and 0", s.calls, s.refused)
		}
	})
}

func TestCallsThatKeepTheirChargeWaitForTheReset(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, routes := newSettlingServer(t, chat("100000 per minute by ip"))
		s.costs = func(int) int64 { return 4000 }
		s.lasts = func() time.Duration { return time.Second }
		took := s.call(75, 20, pacer.New(&pacer.Options{Base: s, Routes: routes}))
		if s.refused > 1 { // the first calls can be expected to give something back
			t.Errorf("%d refusals", s.refused)
		}
		if took > 3*time.Minute {
			t.Errorf("75 calls of 25 a minute took %v", took)
		}
		t.Logf("%v, %d refused", took, s.refused)
	})
}

func TestNeverMoreCallsInFlightThanTheRoutesAllow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := chat("100000 requests per day by ip")
		l.Cost, l.Actual = 0, weir.Reading{}
		l.InFlight, _ = weir.ParseInFlight("10 by ip")
		s, routes := newSettlingServer(t, l)
		s.costs = func(int) int64 { return 1 }
		s.lasts = func() time.Duration { return time.Second }
		took := s.call(200, 64, pacer.New(&pacer.Options{Base: s, Routes: routes}))
		if s.refused != 0 || s.most != 10 {
			t.Errorf("%d refusals, %d in flight: want 0 and 10", s.refused, s.most)
		}
		if took > 25*time.Second {
			t.Errorf("200 calls of a second, 10 at a time, took %v", took)
		}
	})
}

// Slots are their caller's, though the windows beside them count by more.
func TestCallsWithOtherWindowsShareTheirSlots(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := chat("100000 per day by ip+agent")
		l.Cost, l.Actual = 0, weir.Reading{}
		l.InFlight, _ = weir.ParseInFlight("2 by ip")
		s, routes := newSettlingServer(t, l)
		s.costs = func(int) int64 { return 1 }
		s.lasts = func() time.Duration { return time.Second }
		client := pacer.New(&pacer.Options{Base: s, Routes: routes})
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				r, _ := http.NewRequest("POST", "http://api.example.com/v1/chat", nil)
				r.Header.Set("User-Agent", "agent "+strconv.Itoa(i))
				response, err := client.RoundTrip(r)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := io.Copy(io.Discard, response.Body); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if s.refused != 0 || s.most != 2 {
			t.Errorf("%d refusals, %d in flight: want 0 and 2", s.refused, s.most)
		}
	})
}

// A call that waits for its budget is not in flight, so calls of other windows use its slot.
func TestACallThatWaitsForItsBudgetHoldsNoSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := chat("1 per hour by agent")
		l.Cost, l.Actual = 0, weir.Reading{}
		l.InFlight, _ = weir.ParseInFlight("1 by ip")
		s, routes := newSettlingServer(t, l)
		s.costs = func(int) int64 { return 1 }
		s.lasts = func() time.Duration { return time.Second }
		client := pacer.New(&pacer.Options{Base: s, Routes: routes, MaxWait: 24 * time.Hour})
		call := func(agent string) {
			r, _ := http.NewRequest("POST", "http://api.example.com/v1/chat", nil)
			r.Header.Set("User-Agent", agent)
			response, err := client.RoundTrip(r)
			if err != nil {
				t.Errorf("%s: %v", agent, err)
				return
			}
			if _, err := io.Copy(io.Discard, response.Body); err != nil {
				t.Error(err)
			}
		}
		began := time.Now()
		call("a")
		var waiting sync.WaitGroup
		for range 3 { // the first of the line, and two behind it
			waiting.Go(func() { call("a") })
		}
		pass(10 * time.Second)
		call("b")
		if took := time.Since(began); took > time.Minute {
			t.Errorf("a call with budget waited for %v", took)
		}
		waiting.Wait()
		if s.refused != 0 || s.most != 1 || s.calls != 5 {
			t.Errorf("%d calls, %d refused, at most %d in flight: want 5, 0 and 1", s.calls, s.refused, s.most)
		}
	})
}

// A caller's slots are not forgotten while its answer lasts, whatever many other callers do.
func TestSlotsOutlastTheCallsOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := chat("100000 per day by ip")
		l.Windows, l.Cost, l.Actual = nil, 0, weir.Reading{}
		l.InFlight, _ = weir.ParseInFlight("1 by agent")
		_, routes := newSettlingServer(t, l)
		base := doer(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r, Body: io.NopCloser(bytes.NewReader(nil))}, nil
		})
		client := pacer.New(&pacer.Options{Base: base, Routes: routes, MaxWait: time.Second})
		call := func(agent int) (*http.Response, error) {
			r, _ := http.NewRequest("POST", "http://api.example.com/v1/chat", nil)
			r.Header.Set("X-Agent-Id", strconv.Itoa(agent))
			return client.RoundTrip(r)
		}
		first, err := call(0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3000 {
			other, err := call(1 + i)
			if err != nil {
				t.Fatal(err)
			}
			other.Body.Close()
		}
		_, err = call(0)
		if wait := asWait(t, err); wait.Reason != pacer.SlotsTaken {
			t.Errorf("a second call of the first caller: %v", err)
		}
		first.Body.Close()
		if _, err = call(0); err != nil {
			t.Errorf("after the first call: %v", err)
		}
	})
}

// A call whose context has ended is no longer under way, also if its body was never closed.
func TestTheEndOfACallsContextGivesItsSlotBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := chat("100000 per day by ip")
		l.InFlight, _ = weir.ParseInFlight("1 by ip")
		s, routes := newSettlingServer(t, l)
		s.costs = func(int) int64 { return 1 }
		s.lasts = func() time.Duration { return time.Hour }
		base := doer(func(r *http.Request) (*http.Response, error) {
			response, err := s.RoundTrip(r)
			// as net/http's server, which sees the client leave
			if err == nil && response.StatusCode == http.StatusOK {
				context.AfterFunc(r.Context(), response.Body.(*settlingBody).over)
			}
			return response, err
		})
		client := pacer.New(&pacer.Options{Base: base, Routes: routes, MaxWait: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := http.NewRequest("POST", "http://api.example.com/v1/chat", nil)
		if _, err := client.RoundTrip(r.WithContext(ctx)); err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := client.RoundTrip(r); err != nil {
			t.Errorf("after the first call was cancelled: %v", err)
		}
	})
}

func TestACallThatGetsNoSlotFailsInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := chat("100000 per day by ip")
		l.InFlight, _ = weir.ParseInFlight("1 by ip")
		s, routes := newSettlingServer(t, l)
		s.costs = func(int) int64 { return 1 }
		s.lasts = func() time.Duration { return time.Hour }
		client := pacer.New(&pacer.Options{Base: s, Routes: routes, MaxWait: time.Minute})
		r, _ := http.NewRequest("POST", "http://api.example.com/v1/chat", nil)
		first, err := client.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = client.RoundTrip(r)
		if wait := asWait(t, err); wait.Reason != pacer.SlotsTaken || time.Since(began) != time.Minute {
			t.Errorf("%v after %v: %v", wait.Reason, time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = client.RoundTrip(r.WithContext(ctx))
		if wait := asWait(t, err); wait.Reason != pacer.SlotsTaken || !wait.Timeout() {
			t.Errorf("with a deadline: %v", err)
		}
		if _, err := io.Copy(io.Discard, first.Body); err != nil {
			t.Fatal(err)
		}
		if _, err := client.RoundTrip(r); err != nil {
			t.Errorf("after the first call has ended: %v", err)
		}
	})
}

func TestCallsOfAnyCostAreRarelyRefusedForWhatTheyExpect(t *testing.T) {
	for _, most := range []int64{100, 1000, 3000, 4000} {
		calls, refused := 0, 0
		for seed := range uint64(20) {
			bubble(t, func(t *testing.T) {
				s, routes := newSettlingServer(t, chat("100000 per minute by ip"))
				random := rand.New(rand.NewPCG(seed, uint64(most)))
				s.costs = func(int) int64 { return random.Int64N(most) }
				s.lasts = func() time.Duration { return time.Duration(random.Int64N(int64(3 * time.Second))) }
				s.call(300, 20, pacer.New(&pacer.Options{Base: s, Routes: routes}))
				calls, refused = calls+s.calls, refused+s.refused
			})
		}
		if refused*1000 > calls {
			t.Errorf("costs up to %d: %d of %d calls were refused, more than 1 in 1000", most, refused, calls)
		}
		t.Logf("costs up to %d: %d of %d refused", most, refused, calls)
	}
}
