package pacer_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/pacer"
)

// spent returns a client whose budget of 10 is used up to the threshold of 1, 10 ms
// after its first request.
func spent(t *testing.T, o pacer.Options) (*world, *pacer.Transport) {
	t.Helper()
	w := newWorld(t, policy("10 per minute by token or ip"), 0)
	o.Base = w
	p := pacer.New(&o)
	w.spend(usable(10), 1, p)
	return w, p
}

func TestADeadlineIsCheckedBeforeAWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := spent(t, pacer.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		began := time.Now()
		_, err := p.RoundTrip(w.request("GET", "/v1/wp/status", "").WithContext(ctx))
		wait := asWait(t, err)
		if time.Since(began) != 0 {
			t.Errorf("it took %v to know that the deadline is too soon", time.Since(began))
		}
		if !errors.Is(err, context.DeadlineExceeded) || !wait.Timeout() || wait.Limiter != "wp-plugin" || wait.Host != "api.example.com" || wait.Reason != pacer.BudgetSpent {
			t.Errorf("%+v: %v", wait, err)
		}
		pass(time.Until(wait.Until))
		w.do(p, w.request("GET", "/v1/wp/status", ""))
		if w.refused != 0 {
			t.Error("a call at the reported time was refused")
		}
	})
}

func TestQueuedCallsKnowThatTheirTurnIsTooLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := spent(t, pacer.Options{})
		var all sync.WaitGroup
		for range usable(10) { // they take the next window
			all.Go(func() { w.do(p, w.request("PUT", "/v1/wp/documents", "")) })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		began := time.Now()
		_, err := p.RoundTrip(w.request("GET", "/v1/wp/status", "").WithContext(ctx))
		if wait := asWait(t, err); time.Since(began) != 0 || wait.Wait < 100*time.Second {
			t.Errorf("after %v: %+v", time.Since(began), wait)
		}
		if wait := p.Estimate(w.request("GET", "/v1/wp/status", ""), 1); wait < 100*time.Second || wait > 121*time.Second {
			t.Errorf("Estimate of one more is %v, want two Resets", wait)
		}
		all.Wait()
	})
}

func TestNoCallWaitsLongerThanMaxWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := spent(t, pacer.Options{MaxWait: 10 * time.Second})
		_, err := p.RoundTrip(w.request("GET", "/v1/wp/status", ""))
		if wait := asWait(t, err); errors.Is(err, context.DeadlineExceeded) || wait.Timeout() || !wait.Temporary() || wait.Wait < 55*time.Second {
			t.Errorf("%+v: %v", wait, err)
		}
	})
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := spent(t, pacer.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error)
		for range 3 { // the first, and two after it
			go func() {
				_, err := p.RoundTrip(w.request("GET", "/v1/wp/status", "").WithContext(ctx))
				errs <- err
			}()
		}
		synctest.Wait()
		began := time.Now()
		cancel()
		for range 3 {
			if err := <-errs; err != context.Canceled {
				t.Errorf("the wait ended with %v", err)
			}
		}
		if time.Since(began) != 0 {
			t.Errorf("they took %v to end", time.Since(began))
		}
		w.do(p, w.request("GET", "/v1/wp/status", "")) // no call blocks it
	})
}

func TestCallsAreSentInTheirOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := spent(t, pacer.Options{})
		var all sync.WaitGroup
		var mu sync.Mutex
		var order []int
		for i := range 30 {
			all.Go(func() {
				r := w.request("PUT", "/v1/wp/documents", bodyOf(i))
				if _, err := p.RoundTrip(r); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			})
			synctest.Wait()
		}
		all.Wait()
		// answers of one window may arrive out of order
		for window := range slices.Chunk(order, usable(10)) {
			slices.Sort(window)
		}
		if !slices.IsSorted(order) {
			t.Errorf("they went in the order %v", order)
		}
	})
}

func TestAFirstRequestProbes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, policy("10 per minute by token or ip"), 0)
		w.latency = 100 * time.Millisecond
		others := pacer.New(&pacer.Options{Base: w})
		w.spend(6, 1, others) // so 4 are left, which a new process does not know
		var waits []pacer.Wait
		var mu sync.Mutex
		newcomer := pacer.New(&pacer.Options{Base: w, OnWait: func(wait pacer.Wait) {
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, wait)
		}})
		w.spend(10, 10, newcomer)
		if w.refused != 0 {
			t.Errorf("%d were refused", w.refused)
		}
		if len(waits) == 0 || waits[0].Reason != pacer.Probing {
			t.Errorf("OnWait received %+v", waits)
		}
	})
}

func TestASlowFirstRequestDelaysNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, policy("60 per minute by token or ip"), 0)
		w.think = func() time.Duration { return 30 * time.Second }
		took := w.spend(32, 32, pacer.New(&pacer.Options{Base: w}))
		if took > 36*time.Second {
			t.Errorf("32 requests of 30 s took %v", took)
		}
	})
}

func TestAnUnsentRequestCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		down := errors.New("no route to host")
		s := &script{replies: []reply{{err: down}}}
		p := pacer.New(&pacer.Options{Base: s})
		began := time.Now()
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				if _, err := p.RoundTrip(get(t)); !errors.Is(err, down) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > time.Second {
			t.Errorf("64 calls to a server that is down took %v", took)
		}
	})
}

func TestManySessionsAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{replies: []reply{{status: 200, header: fields("60", "59", "now+60")}}}
		p := pacer.New(&pacer.Options{Base: s})
		for i := range 20_000 {
			r := get(t)
			r.Header.Set("Authorization", "Bearer wpt_"+bodyOf(i)+"_secret")
			if _, err := p.RoundTrip(r); err != nil {
				t.Fatal(err)
			}
			pass(100 * time.Millisecond)
		}
		if kept := len(p.Budgets()); kept > 2048 {
			t.Errorf("%d budgets are kept, of which some 600 have not been restored", kept)
		}
	})
}

func TestWhichRequestsShareABudget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{replies: []reply{{status: 200, header: fields("60", "7", "now+60")}}}
		p := pacer.New(&pacer.Options{Base: s})
		send := func(url, authorization string) {
			r, err := http.NewRequest("POST", url, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", authorization)
			if _, err := p.RoundTrip(r); err != nil {
				t.Fatal(err)
			}
		}
		for _, url := range []string{"http://a.example.com/v1/wp/documents", "http://a.example.com/v1//wp/coupons", "http://b.example.com/v1/wp/documents"} {
			send(url, "Bearer wpt_one_x")
			send(url, "bearer wpt_two_x")
		}
		session := func(claims string) string { return "Bearer e30." + b64(claims) + ".sig" }
		for _, a := range []string{session(`{"sid":"s1","iat":1}`), session(`{"sid":"s1","iat":2}`), session(`{"sid":"s2"}`), session(`{"jti":"j1"}`), "Bearer opaque"} {
			send("http://a.example.com/api/v1/widget/messages", a)
			send("http://a.example.com/api/v1/widget/leads", a)
		}
		var got []string
		for _, b := range p.Budgets() {
			if !b.Known || b.Limit != 60 || b.Remaining != 7 || b.InFlight != 0 {
				t.Errorf("%+v", b)
			}
			got = append(got, b.Host+" "+b.Limiter)
		}
		want := []string{"a.example.com widget-leads", "a.example.com widget-leads", "a.example.com widget-leads", "a.example.com widget-leads",
			"a.example.com widget-session", "a.example.com widget-session", "a.example.com widget-session", "a.example.com widget-session",
			"a.example.com wp-plugin", "a.example.com wp-plugin", "b.example.com wp-plugin", "b.example.com wp-plugin"}
		if !slices.Equal(got, want) {
			t.Errorf("the budgets are\n%v, want\n%v", got, want)
		}
	})
}

func TestADeadlineIsTooSoonOnlyIfThatIsCertain(t *testing.T) {
	bubble(t, func(t *testing.T) { // a probe is in flight, and will return in time
		w := newWorld(t, policy("60 per minute by token or ip"), 0)
		w.latency = 100 * time.Millisecond
		p := pacer.New(&pacer.Options{Base: w})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { w.do(p, w.request("GET", "/v1/wp/status", "").WithContext(ctx)) })
		}
		all.Wait()
	})
	// units in flight have already been charged, though their answers are missing
	bubble(t, func(t *testing.T) {
		w := newWorld(t, policy("60 per minute by token or ip"), 0)
		p := pacer.New(&pacer.Options{Base: w})
		w.do(p, w.request("GET", "/v1/wp/status", ""))
		w.think = func() time.Duration { return time.Second }
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for range usable(60) - 1 {
			all.Go(func() { w.do(p, w.request("GET", "/v1/wp/status", "").WithContext(ctx)) })
		}
		synctest.Wait()
		began := time.Now()
		_, err := p.RoundTrip(w.request("GET", "/v1/wp/status", "").WithContext(ctx))
		if wait := asWait(t, err); time.Since(began) > 2*time.Second || wait.Wait < 50*time.Second {
			t.Errorf("after %v: %+v", time.Since(began), wait)
		}
		all.Wait()
	})
}
