package weir

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/e2e/child"
	"github.com/weirlimit/weir/e2e/redistest"
)

const (
	killReserve = 20
	killAtOnce  = 100 // requests in flight when a node is killed
	killLoad    = 4   // callers of the node that lives
)

// A killBackend answers each request with a cost, and those to /held when they are released.
type killBackend struct {
	mu      sync.Mutex
	gate    chan struct{}
	waiting atomic.Int64
}

// release answers every waiting request. Later ones wait again.
func (b *killBackend) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.gate)
	b.gate = make(chan struct{})
}

func (b *killBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/held" {
		b.mu.Lock()
		gate := b.gate
		b.mu.Unlock()
		b.waiting.Add(1)
		defer b.waiting.Add(-1)
		select {
		case <-gate:
		case <-r.Context().Done():
		}
	}
	cost := strconv.Itoa(rand.IntN(killReserve + 1))
	w.Header().Set("X-Cost", cost)
	w.Header().Set("Was", cost)
}

// answers are what the answers of a node reported.
type answers struct {
	spent             atomic.Int64 // units of the requests that were answered
	admitted, refused atomic.Int64
	unknown           atomic.Int64 // requests without an answer
}

func (a *answers) ask(t *testing.T, client *http.Client, url string) {
	answer, err := client.Get(url)
	if err != nil {
		a.unknown.Add(1)
		return
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	switch answer.StatusCode {
	case http.StatusOK:
		cost, err := strconv.ParseInt(answer.Header.Get("Was"), 10, 64)
		if err != nil {
			t.Errorf("an answer has the cost %q", answer.Header.Get("Was"))
		}
		a.spent.Add(cost)
		a.admitted.Add(1)
	case http.StatusTooManyRequests:
		a.refused.Add(1)
	default:
		a.unknown.Add(1)
	}
}

// Nodes are killed with requests in flight, again and again, while another one serves. Then the
// store counts what the answers reported, and for each request of a killed node at most what it had
// reserved besides: never less than was served. The slots of a killed node are free within the time
// after which they expire. WEIR_TEST_KILLS, such as 2m, makes it last longer.
func TestKilledNodesNeverExceedALimit(t *testing.T) {
	const limit = 100_000_000
	backend := &killBackend{gate: make(chan struct{})}
	upstream := httptest.NewServer(backend)
	t.Cleanup(upstream.Close)
	t.Cleanup(backend.release)
	policy := policyFile(t, fmt.Sprintf("limiters:\n  - name: all\n    routes: [/*]\n    cost: {reserve: %d, from: header:X-Cost}\n"+
		"    in_flight: %d by ip\n    windows: [%d per day by ip]\n", killReserve, 2*killAtOnce, limit))
	redis := redistest.Start(t)
	args := []string{"--store", redis.URL(), "--upstream", upstream.URL, "--policy", policy, "--access-log=off", patient}
	steady := serveWeir(t, args...)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * killAtOnce}, Timeout: time.Minute}
	t.Cleanup(client.CloseIdleConnections)

	var lives, dies answers
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for range killLoad {
		load.Go(func() {
			for ctx.Err() == nil {
				lives.ask(t, client, steady.url+"/now")
			}
		})
	}
	defer load.Wait()
	defer cancel()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("living: %d answered, %d refused, %d unknown; dying: %d answered, %d refused, %d unknown; %d wait, %d slots",
				lives.admitted.Load(), lives.refused.Load(), lives.unknown.Load(), dies.admitted.Load(), dies.refused.Load(), dies.unknown.Load(),
				backend.waiting.Load(), slotsHeld(t, redis))
		}
	})

	length, _ := time.ParseDuration(os.Getenv("WEIR_TEST_KILLS")) // 0: once
	rounds, longest, began := 0, time.Duration(0), time.Now()
	for rounds == 0 || time.Since(began) < length {
		rounds++
		node := serveWeir(t, args...)
		var held sync.WaitGroup
		for range killAtOnce {
			held.Go(func() { dies.ask(t, client, node.url+"/held") })
		}
		eventuallyHolds(t, func() bool { return backend.waiting.Load() == killAtOnce })
		if rounds%2 == 0 {
			backend.release() // settlements are under way
		}
		node.kill()
		killed := time.Now()
		held.Wait()
		backend.release()
		eventuallyHolds(t, func() bool { return slotsHeld(t, redis) <= killLoad })
		longest = max(longest, time.Since(killed))
	}
	cancel()
	load.Wait()
	eventuallyHolds(t, func() bool { return slotsHeld(t, redis) == 0 })

	served := lives.spent.Load() + dies.spent.Load()
	most := served + killReserve*(dies.unknown.Load()+dies.admitted.Load())
	// A settlement may come on another connection than the end of its slot.
	n, late := unitsCounted(t, redis), time.Now().Add(child.Patience)
	for n > most && time.Now().Before(late) {
		n = unitsCounted(t, redis)
	}
	if n < served || n > most {
		t.Errorf("%d units are counted: %d were served, and at most %d may be counted", n, served, most)
	} else {
		t.Logf("%d kills in %v: %d requests were answered and cost %d units, %d were counted; %d had no answer; slots were free after at most %v",
			rounds, time.Since(began).Round(time.Second), lives.admitted.Load()+dies.admitted.Load(), served, n, dies.unknown.Load(), longest.Round(100*time.Millisecond))
	}
	if n := lives.unknown.Load() + lives.refused.Load() + dies.refused.Load(); n > 0 {
		t.Errorf("%d requests were refused or not answered by a living node", n)
	}
}

// eventuallyHolds polls until holds returns true.
func eventuallyHolds(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(child.Patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not after %v", child.Patience)
		}
	}
}

// slotsHeld returns how many slots have not expired, by the server's clock.
func slotsHeld(t *testing.T, server *redistest.Server) int64 {
	t.Helper()
	return evalOf(t, server, `local t,n=redis.call('TIME'),0
		for _,k in ipairs(redis.call('KEYS','weir:{*')) do
			if redis.call('TYPE',k).ok=='zset' and not string.find(k,'trial') then n=n+redis.call('ZCOUNT',k,t[1]*1000+t[2]/1000,'+inf') end
		end
		return n`)
}

// unitsCounted returns the sum of all windows.
func unitsCounted(t *testing.T, server *redistest.Server) int64 {
	t.Helper()
	return evalOf(t, server, `local n=0
		for _,k in ipairs(redis.call('KEYS','weir:{*')) do
			if redis.call('TYPE',k).ok=='string' and not string.find(k,'trial') then n=n+redis.call('GET',k)%2147483648 end
		end
		return n`)
}

func evalOf(t *testing.T, server *redistest.Server, script string) int64 {
	t.Helper()
	m := server.Do(t, "EVAL", script, "0")
	n, err := m.AsInt64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
