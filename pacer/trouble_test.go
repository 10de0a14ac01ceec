package pacer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/pacer"
	"github.com/weirlimit/weir/policyfile"
)

// A doer is a base transport that is a function.
type doer func(*http.Request) (*http.Response, error)

func (d doer) RoundTrip(r *http.Request) (*http.Response, error) { return d(r) }

// initAs returns an init request for an agent.
func initAs(t *testing.T, agent int) *http.Request {
	t.Helper()
	r := unsigned(t, "POST", "http://api.example.com/api/v1/widget/init")
	r.Header.Set("X-Agent-Id", fmt.Sprint("agent ", agent))
	return r
}

func TestTwoWindowsCauseNoRefusal(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	for seed := range uint64(60) {
		bubble(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 9))
			minute, hour := 5+random.IntN(30), 10+random.IntN(100)
			own := random.IntN(2) == 0
			// the routes declare other windows than the server has: the first that
			// binds is taken for the first
			if !own {
				hour += minute
			}
			text := fmt.Sprintf("limiters:\n  - name: widget-init\n    routes: [POST /api/v1/widget/init]\n    windows: [%d per %d seconds by ip+agent, %d per minute by ip]\n",
				minute, 2+random.IntN(20), hour)
			file, err := policyfile.Parse("policy.yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			o := pacer.Options{MaxWait: 2 * time.Hour}
			if own {
				if o.Routes, err = weir.NewRoutes(file.Policy); err != nil {
					t.Fatal(err)
				}
			}
			w := newWorld(t, text, 0)
			w.latency = time.Duration(random.IntN(300)) * time.Millisecond
			o.Base = w
			p := pacer.New(&o)
			agents := 1 + random.IntN(8)
			var all sync.WaitGroup
			for i := range 300 {
				all.Go(func() {
					pass(time.Duration(i) * 50 * time.Millisecond)
					w.do(p, initAs(t, i%agents))
				})
			}
			all.Wait()
			if w.refused != 0 {
				t.Errorf("case %d: %d by agent, %d by address, %d agents, %v away: %d refusals", seed, minute, hour, agents, w.latency, w.refused)
			}
		})
	}
}

func TestABodyIsNotAlteredByALateRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		out, in := io.Pipe()
		go func() {
			in.Write([]byte("01234567"))
			pass(500 * time.Millisecond)
			in.Write([]byte("89abcdef")) // after the refusal, and more than is kept
			pass(5 * time.Second)
			in.Write([]byte("THE REST"))
			in.Close()
		}()
		sent, second := 0, ""
		p := pacer.New(&pacer.Options{MaxBody: 10, Base: doer(func(r *http.Request) (*http.Response, error) {
			if sent++; sent == 1 {
				go func() { // a connection that is still writing when the refusal comes
					defer r.Body.Close()
					io.Copy(io.Discard, r.Body)
				}()
				pass(10 * time.Millisecond)
				return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"1"}}, Body: http.NoBody}, nil
			}
			text, err := io.ReadAll(r.Body)
			r.Body.Close()
			second = string(text)
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, err
		})})
		response, err := p.RoundTrip(put(t, out))
		if err == nil && response.StatusCode == 200 && second != "0123456789abcdefTHE REST" {
			t.Errorf("the second time %q was sent, and accepted", second)
		}
	})
}

func TestARefusalWhoseBodyNeverEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		never, end := io.Pipe()
		defer end.Close()
		sent := 0
		p := pacer.New(&pacer.Options{Base: doer(func(*http.Request) (*http.Response, error) {
			if sent++; sent == 1 {
				return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"1"}}, Body: never}, nil
			}
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
		})})
		began := time.Now()
		if response, err := p.RoundTrip(get(t)); err != nil || response.StatusCode != 200 || time.Since(began) > 2*time.Second {
			t.Errorf("after %v: %v, %v", time.Since(began), response, err)
		}
	})
}

func TestManyMoreProcessesThanAStateHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, policy("1000 per 10 seconds by token or ip"), 0)
		m := &memory{states: map[string][]byte{}}
		hang := make(chan struct{})
		base := doer(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/long") {
				<-hang
			}
			return w.RoundTrip(r)
		})
		p := pacer.New(&pacer.Options{Base: base, Shared: m})
		w.do(p, w.request("GET", "/v1/wp/status", ""))
		var all sync.WaitGroup
		for range 40 {
			other := pacer.New(&pacer.Options{Base: base, Shared: m})
			all.Go(func() { w.do(other, w.request("GET", "/v1/wp/long", "")) })
		}
		synctest.Wait()
		began := time.Now()
		for range 900 {
			w.do(p, w.request("GET", "/v1/wp/status", ""))
		}
		if took := time.Since(began); took > 9*time.Second {
			t.Errorf("900 of 1000 took %v with 40 in flight", took)
		}
		close(hang)
		all.Wait()
	})
}

// A full changes a state, and then fails to store it.
type full struct{}

func (full) Update(_ string, change func([]byte) []byte) error {
	change(nil)
	return errors.New("no space left on device")
}

func TestAViewThatCannotBeWrittenCountsOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{replies: []reply{{status: 200, header: fields("60", "59", "now+60")}}}
		p := pacer.New(&pacer.Options{Base: s, Shared: full{}, MaxWait: pacer.NoWait})
		if _, err := p.RoundTrip(get(t)); err != nil {
			t.Fatalf("the first call of all: %v", err)
		}
		if b := p.Budgets(); len(b) != 1 || b[0].InFlight != 0 || b[0].Remaining != 59 {
			t.Errorf("%+v", b)
		}
	})
}

func TestCallbacksMayCallTheTransport(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{replies: []reply{{status: 200, header: fields("60", "0", "now+60")}}}
		var p *pacer.Transport
		calls := 0
		ask := func() {
			calls++
			p.Budgets()
			p.Budget(get(t))
			p.Estimate(get(t), 5)
		}
		p = pacer.New(&pacer.Options{Base: s, Shared: full{}, OnSharedFailure: func(error) { ask() }, OnWait: func(pacer.Wait) { ask() }})
		for range 2 {
			if _, err := p.RoundTrip(get(t)); err != nil {
				t.Fatal(err)
			}
		}
		if calls < 2 {
			t.Errorf("the callbacks were called %d times", calls)
		}
	})
}

func TestEveryMaxWaitIsValid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := spent(t, pacer.Options{MaxWait: math.MaxInt64})
		w.do(p, w.request("GET", "/v1/wp/status", ""))
	})
	// if a 429 asks for too long a wait, that is known at once, in each form
	bubble(t, func(t *testing.T) {
		s := &script{replies: []reply{{status: 429, header: with(fields("60", "0", "now+60"), "Retry-After", "20")}}}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		began := time.Now()
		_, err := pacer.New(&pacer.Options{Base: s}).RoundTrip(get(t).WithContext(ctx))
		if wait := asWait(t, err); time.Since(began) > time.Second || wait.Wait < 59*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestAFalseWindowLengthIsCorrected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, policy("60 per 10 seconds by token or ip"), 0)
		first := true
		var mu sync.Mutex
		w.alter = func(r *http.Response) {
			mu.Lock()
			defer mu.Unlock()
			if first { // from a proxy whose clock is 20 minutes behind
				r.Header.Set("Date", time.Now().Add(-20*time.Minute).UTC().Format(http.TimeFormat))
			}
			first = false
		}
		p := pacer.New(&pacer.Options{Base: w})
		w.spend(2, 1, p)
		w.spend(5*usable(60), 200, p)
	})
}

func TestAWindowWhoseProxyAnswersFirst(t *testing.T) {
	bubble(t, func(t *testing.T) { // a 502 before each window, from a proxy without a limiter
		w := newWorld(t, policy("60 per 10 seconds by token or ip"), 0)
		var mu sync.Mutex
		last := time.Time{}
		w.alter = func(r *http.Response) {
			mu.Lock()
			defer mu.Unlock()
			if time.Since(last) > 5*time.Second {
				clear(r.Header)
			}
			last = time.Now()
		}
		w.spend(5*usable(60), 200, pacer.New(&pacer.Options{Base: w}))
		if w.refused > usable(60)*4 { // the very first reports no limit
			t.Errorf("%d refusals", w.refused)
		}
	})
}

func TestABaseThatPanicsLeavesNothingInFlight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := pacer.New(&pacer.Options{Base: doer(func(*http.Request) (*http.Response, error) { panic("base") })})
		func() {
			defer func() { _ = recover() }()
			_, _ = p.RoundTrip(get(t))
		}()
		if b := p.Budget(get(t)); b.InFlight != 0 || b.Wait != 0 {
			t.Errorf("%+v", b)
		}
	})
}

func TestAPIKeysAreNotShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{replies: []reply{{status: 200, header: fields("60", "59", "now+60")}}}
		p := pacer.New(&pacer.Options{Base: s, Source: func(r *http.Request, source string) (string, bool) {
			return r.Header.Get("X-Api-Key"), source == "token"
		}})
		for _, key := range []string{"sk_live_AAAA", "sk_live_BBBB", "topsecret"} {
			for _, host := range []string{"http://api.example.com", "http://API.example.com", "http://api.example.com:80"} {
				r, err := http.NewRequest("GET", host+"/v1/wp/status", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("X-Api-Key", key)
				if _, err := p.RoundTrip(r); err != nil {
					t.Fatal(err)
				}
			}
		}
		budgets := p.Budgets()
		if len(budgets) != 3 {
			t.Errorf("three keys of one server have %d budgets", len(budgets))
		}
		for _, b := range budgets {
			if strings.Contains(b.Key, "sk") || strings.Contains(b.Key, "secret") {
				t.Errorf("%q is shown", b.Key)
			}
		}
	})
}

func TestASessionWithRenewedTokensIsRememberedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{replies: []reply{{status: 200, header: fields("60", "59", "now+60")}}}
		p := pacer.New(&pacer.Options{Base: s})
		for i := range 5000 {
			r, err := http.NewRequest("GET", "http://api.example.com/api/v1/widget/events", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer e30."+b64(fmt.Sprintf(`{"sid":"one","iat":%d}`, i))+".sig")
			p.Budget(r)
		}
		if kept := pacer.Aliases(p); kept > 1100 {
			t.Errorf("%d tokens of one session are remembered", kept)
		}
	})
}

func TestATLSDialerCannotBeBound(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("New took a base that dials TLS by itself, whose requests leave from anywhere")
		}
	}()
	base := &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return nil, nil }}
	pacer.New(&pacer.Options{Base: base, Egress: addresses("127.0.0.2")})
}

// Over real connections, HTTP/1.1 and HTTP/2, with and without Expect, each body
// arrives complete, though each was refused once.
func TestBodiesOverRealConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	for _, version := range []int{1, 2} {
		var mu sync.Mutex
		refused, got := make(map[string]bool), make(map[string]int)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			mu.Lock()
			first := !refused[r.URL.Path]
			refused[r.URL.Path] = true
			mu.Unlock()
			if first { // without reading the body
				rw.Header().Set("Retry-After", "1")
				rw.WriteHeader(http.StatusTooManyRequests)
				return
			}
			n, err := io.Copy(io.Discard, r.Body)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			got[r.URL.Path] = int(n)
			mu.Unlock()
		}))
		server.EnableHTTP2, server.Config.ErrorLog = version == 2, log.New(io.Discard, "", 0)
		server.StartTLS()
		base := server.Client().Transport.(*http.Transport)
		base.ExpectContinueTimeout = time.Second
		p := pacer.New(&pacer.Options{Base: base, Jitter: -1})
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				body := io.Reader(strings.NewReader(strings.Repeat("0123456789", 60_000)))
				if i%2 == 0 {
					body = io.MultiReader(body) // no GetBody
				}
				r, err := http.NewRequest("POST", fmt.Sprintf("%s/%d", server.URL, i), body)
				if err != nil {
					t.Error(err)
					return
				}
				if i%3 == 0 {
					r.Header.Set("Expect", "100-continue")
				}
				response, err := p.RoundTrip(r)
				if err != nil {
					t.Errorf("HTTP/%d, request %d: %v", version, i, err)
					return
				}
				response.Body.Close()
				if response.StatusCode != http.StatusOK || response.ProtoMajor != version {
					t.Errorf("HTTP/%d, request %d: %s %s", version, i, response.Proto, response.Status)
				}
			})
		}
		all.Wait()
		for path, n := range got {
			if n != 600_000 {
				t.Errorf("HTTP/%d: %s arrived with %d bytes", version, path, n)
			}
		}
		p.CloseIdleConnections()
		server.Close()
	}
}

func TestRequestsThatHangDelayOthersByAtMostAWindow(t *testing.T) {
	for _, limit := range []int{1, 2, 5, 10} {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, policy(fmt.Sprintf("%d per 10 seconds by token or ip", limit)), 0)
			hang := make(chan struct{})
			p := pacer.New(&pacer.Options{Base: doer(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "/hang") {
					<-hang
				}
				return w.RoundTrip(r)
			})})
			w.do(p, w.request("GET", "/v1/wp/status", ""))
			pass(11 * time.Second)
			var all sync.WaitGroup
			for range limit {
				all.Go(func() { w.do(p, w.request("GET", "/v1/wp/hang", "")) })
				pass(4 * time.Second)
			}
			began := time.Now()
			w.do(p, w.request("GET", "/v1/wp/status", ""))
			if took := time.Since(began); took > 21*time.Second {
				t.Errorf("with %d hanging requests, another waited %v; a window is 10 s", limit, took)
			}
			close(hang)
			all.Wait()
		})
	}
}

func TestAWindowThatNeverBoundIsNotOverspent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const text = "limiters:\n  - name: widget-init\n    routes: [POST /api/v1/widget/init]\n    windows: [2 per 20 seconds by ip+agent, 5 per minute by ip]\n"
		file, err := policyfile.Parse("policy.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		routes, err := weir.NewRoutes(file.Policy)
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, text, 0)
		p := pacer.New(&pacer.Options{Base: w, Routes: routes})
		for _, agent := range []int{0, 0, 1, 1} {
			w.do(p, initAs(t, agent))
		}
		w.think = func() time.Duration { return 10 * time.Second }
		var all sync.WaitGroup
		for agent := range 3 {
			all.Go(func() { w.do(p, initAs(t, 2+agent)) })
		}
		all.Wait()
		if w.refused != 0 {
			t.Errorf("%d refusals", w.refused)
		}
	})
}

func TestAStateFromTheFutureIsDiscarded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{replies: []reply{{status: 200, header: fields("60", "0", "now+60")}}}
		m := &memory{states: map[string][]byte{}}
		// from a clock that was a day ahead
		now := func() time.Time { return time.Now().Add(24 * time.Hour) }
		if _, err := pacer.New(&pacer.Options{Base: s, Shared: m, Now: now}).RoundTrip(get(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := pacer.New(&pacer.Options{Base: s, Shared: m, MaxWait: pacer.NoWait}).RoundTrip(get(t)); err != nil {
			t.Errorf("a call after the clock was set right: %v", err)
		}
	})
}
