package pacer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/pacer"
)

// A pool of workers needs only the Transport: each worker waits for its turn in it.
func Example_workerPool() {
	client := &http.Client{Transport: pacer.New(nil)}
	pool(client, "https://api.example.com", "TOKEN", []string{"one", "two", "three"})
}

// pool sends every document with 64 workers, and returns how many were accepted.
func pool(client *http.Client, url, token string, documents []string) (accepted int) {
	jobs := make(chan string)
	var workers sync.WaitGroup
	var done atomic.Int64
	for range 64 {
		workers.Go(func() {
			for id := range jobs {
				r, err := http.NewRequest("GET", url+"/v1/wp/documents?after="+id, nil)
				if err != nil {
					panic(err)
				}
				r.Header.Set("Authorization", "Bearer "+token)
				response, err := client.Do(r) // waits for a budget, and never returns a 429
				if err != nil {
					fmt.Println(err)
					continue
				}
				io.Copy(io.Discard, response.Body)
				response.Body.Close()
				done.Add(1)
			}
		})
	}
	for _, id := range documents {
		jobs <- id
	}
	close(jobs)
	workers.Wait()
	return int(done.Load())
}

// A cron job, such as one of a content management system, has a few seconds at a
// time and must not sleep: it sends what the budget allows, and asks to be run
// again when there is more.
func Example_cron() {
	p := pacer.New(&pacer.Options{MaxWait: pacer.NoWait})
	queue := []string{"post-1", "post-2", "post-3"}
	rest, again := run(p, "https://api.example.com", "TOKEN", queue)
	if len(rest) > 0 {
		fmt.Println("schedule the next run for", again)
	}
}

// run sends what it can, and returns the rest with the time to try again.
func run(p *pacer.Transport, url, token string, queue []string) (rest []string, again time.Time) {
	client := &http.Client{Transport: p}
	for i, id := range queue {
		r, err := http.NewRequest("GET", url+"/v1/wp/documents?after="+id, nil)
		if err != nil {
			panic(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		if b := p.Budget(r); b.Wait > 0 { // known without sending
			return queue[i:], time.Now().Add(b.Wait)
		}
		response, err := client.Do(r)
		var wait *pacer.WaitError
		if errors.As(err, &wait) { // another caller has spent it
			return queue[i:], wait.Until
		}
		if err != nil {
			return queue[i:], time.Now().Add(time.Minute)
		}
		response.Body.Close()
	}
	return nil, time.Time{}
}

// http.Client.Timeout includes the wait for a budget, so leave it 0. AttemptTimeout bounds each
// attempt, a context the whole call.
func Example_timeout() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "60")
		w.Header().Set("X-RateLimit-Remaining", "0")
		w.Header().Set("X-RateLimit-Reset", fmt.Sprint(time.Now().Add(45*time.Second).Unix()))
	}))
	defer server.Close()
	client := &http.Client{Transport: pacer.New(&pacer.Options{AttemptTimeout: 10 * time.Second})}
	defer client.CloseIdleConnections()

	for range 2 {
		// for this call with its waits
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		r, err := http.NewRequestWithContext(ctx, "GET", server.URL+"/things", nil)
		if err != nil {
			panic(err)
		}
		response, err := client.Do(r)
		var wait *pacer.WaitError
		switch {
		case errors.As(err, &wait):
			fmt.Println("not sent:", wait.Reason, "beyond the deadline:", wait.Until.After(wait.Deadline))
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println(response.Status)
			response.Body.Close()
		}
		cancel()
	}
	// Output:
	// 200 OK
	// not sent: budget spent beyond the deadline: true
}

func TestTheWorkerPool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, policy("60 per minute by token or ip"), 0)
		documents := make([]string, 5*usable(60))
		for i := range documents {
			documents[i] = itoa(i)
		}
		began := time.Now()
		if n := pool(&http.Client{Transport: pacer.New(&pacer.Options{Base: w})}, "http://api.example.com", w.token, documents); n != len(documents) {
			t.Errorf("%d of %d were accepted", n, len(documents))
		}
		if took := time.Since(began); w.refused != 0 || took > 4*time.Minute+4*time.Second {
			t.Errorf("five windows took %v, with %d refusals", took, w.refused)
		}
	})
}

func TestTheCron(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, policy("60 per minute by token or ip"), 0)
		queue := make([]string, 3*usable(60))
		for i := range queue {
			queue[i] = itoa(i)
		}
		runs := 0
		for len(queue) > 0 {
			// a new process without knowledge
			p := pacer.New(&pacer.Options{Base: w, MaxWait: pacer.NoWait})
			began := time.Now()
			rest, again := run(p, "http://api.example.com", w.token, queue)
			if took := time.Since(began); took > time.Second {
				t.Errorf("a run took %v", took)
			}
			if len(rest) == len(queue) {
				t.Fatalf("a run at its time sent nothing")
			}
			queue, runs = rest, runs+1
			pass(time.Until(again))
		}
		if runs != 3 || w.refused != 0 {
			t.Errorf("three windows took %d runs, with %d refusals", runs, w.refused)
		}
	})
}

// If a script in a browser cannot read an answer's Date, the first refusal reveals
// the server's clock: Retry-After is Reset minus now.
func TestACallerWithoutDateLearnsTheClockFromARefusal(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"right": 0, "10 minutes slow": 10 * time.Minute, "10 minutes fast": -10 * time.Minute} {
		t.Run("a local clock that is "+name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const windows = 10
				w := newWorld(t, policy("60 per minute by token or ip"), ahead)
				w.alter = func(r *http.Response) { r.Header.Del("Date") }
				n := windows * usable(60)
				took := w.spend(n, 6, pacer.New(&pacer.Options{Base: w}))
				w.once(n)
				if w.refused > 6 { // those in flight at the first refusal
					t.Errorf("%d refusals", w.refused)
				}
				if took > windows*time.Minute+time.Second*windows {
					t.Errorf("%d windows took %v", windows, took)
				}
			})
		})
	}
}

func itoa(n int) string { return fmt.Sprint(n) }
