package pacer_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/pacer"
)

// For any limits, network and callers: if a caller is alone with a credential, it
// is never refused, each request is served once, and the budget is used. Each case
// follows from its number.
func TestALoneCallerIsNeverRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	for seed := range uint64(150) {
		bubble(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			limit, seconds := 1+random.Int64N(200), 2+random.IntN(60)
			windows := 1 + random.IntN(6)
			workers := 1 + random.IntN(100)
			ahead := time.Duration(random.Int64N(int64(40*time.Minute))) - 20*time.Minute
			pass(time.Duration(random.Int64N(int64(time.Second)))) // any fraction of a second
			w := newWorld(t, policy(fmt.Sprintf("%d per %d seconds by token or ip", limit, seconds)), ahead)
			w.latency = time.Duration(random.Int64N(int64(20 * time.Millisecond)))
			var mu sync.Mutex
			slow := time.Duration(random.Int64N(int64(50 * time.Millisecond)))
			w.think = func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(random.Int64N(int64(slow) + 1))
			}
			clients := []http.RoundTripper{pacer.New(&pacer.Options{Base: w, MaxWait: time.Hour})}
			if shared := random.IntN(2) == 0; shared {
				m := &memory{states: map[string][]byte{}}
				for i := range 1 + random.IntN(8) {
					if i == 0 {
						clients = nil
					}
					clients = append(clients, pacer.New(&pacer.Options{Base: w, Shared: m, MaxWait: time.Hour}))
				}
			}
			n := max(windows*usable(limit)-random.IntN(usable(limit)), 1)
			took := w.spend(n, workers, clients...)
			w.once(n)
			if w.refused != 0 {
				t.Errorf("case %d: limit %d per %d s, %d workers, %d clients: %d refusals", seed, limit, seconds, workers, len(clients), w.refused)
			}
			// Each window may slip by a second, and slow requests take longer.
			serial := time.Duration(n/workers+windows) * (2*w.latency + slow)
			if bound := time.Duration(windows)*time.Duration(seconds+1)*time.Second + serial; took > bound {
				t.Errorf("case %d: limit %d per %d s, %d workers, %d clients, %d requests took %v, more than %v", seed, limit, seconds, workers, len(clients), n, took, bound)
			}
		})
	}
}

// Requests get lost, others spend the budget, and callers give up. Still, no call
// hangs, and each answered request was served once.
func TestNoCallHangsDuringFailures(t *testing.T) {
	broken := errors.New("connection reset")
	for seed := range uint64(60) {
		bubble(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			limit := 5 + random.Int64N(100)
			w := newWorld(t, policy(fmt.Sprintf("%d per 10 seconds by token or ip", limit)), 0)
			faulty := &faulty{w: w, random: rand.New(rand.NewPCG(seed, 2)), err: broken}
			o := pacer.Options{Base: faulty, MaxWait: time.Duration(1+random.IntN(60)) * time.Second, Retries: 50}
			if random.IntN(2) == 0 {
				o.Shared = &memory{states: map[string][]byte{}}
			}
			p, other := pacer.New(&o), pacer.New(&o)
			began := time.Now()
			var all sync.WaitGroup
			answered := make(chan int, 300)
			for i := range 300 {
				// some do not pace themselves
				client := []http.RoundTripper{p, other, w}[random.IntN(3)]
				all.Go(func() {
					response, err := client.RoundTrip(w.request("PUT", "/v1/wp/documents", bodyOf(i)))
					var wait *pacer.WaitError
					if err != nil && !errors.Is(err, broken) && !errors.As(err, &wait) {
						t.Errorf("case %d: %v", seed, err)
					}
					if err == nil && response.StatusCode == 204 {
						answered <- i
					}
				})
			}
			all.Wait()
			close(answered)
			for i := range answered {
				if w.served[bodyOf(i)] != 1 {
					t.Errorf("case %d: request %d was served %d times", seed, i, w.served[bodyOf(i)])
				}
			}
			if took := time.Since(began); took > 5*time.Minute {
				t.Errorf("case %d: it took %v", seed, took)
			}
			for _, b := range append(p.Budgets(), other.Budgets()...) {
				if b.InFlight != 0 || b.Waiting != 0 {
					t.Errorf("case %d: afterwards %+v", seed, b)
				}
			}
		})
	}
}

// faulty loses requests and answers.
type faulty struct {
	w      *world
	mu     sync.Mutex
	random *rand.Rand
	err    error
}

func (f *faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	fate := f.random.IntN(10)
	f.mu.Unlock()
	if fate == 0 {
		return nil, f.err
	}
	response, err := f.w.RoundTrip(r)
	if err == nil && fate == 1 && response.StatusCode == 204 {
		return nil, f.err
	}
	if err == nil && fate == 2 {
		response.Header.Del("Date")
	}
	if err == nil && fate == 3 {
		for name := range response.Header {
			response.Header.Del(name)
			delete(response.Header, name)
		}
	}
	return response, err
}
