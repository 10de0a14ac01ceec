package sample

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Another process on the same data directory reports events, and waiting requests receive them.
func TestAnotherProcessesEventsArrive(t *testing.T) {
	k := setUpWith(t, Options{Watch: 5 * time.Millisecond})
	other := *k
	other.b = k.open(Options{Dir: k.dir})
	p := k.listen(k.live(), k.session, "")
	p.wantEvents(1, 1)
	for n := int64(2); n < 30; n++ {
		switch n % 3 {
		case 0:
			k.report(1)
		default:
			other.report(1)
		}
		p.wantEvents(n, n)
	}
	answered := make(chan reply)
	go func() { answered <- k.widget("GET events?after=29&wait=25", "") }()
	eventually(t, "it waits", func() bool { n, _, _, _ := k.holds(); return n == 2 })
	other.report(1)
	(<-answered).want(200).says("items.0.id", 30.0)
	p.leave()
	k.wantNobody()
	eventually(t, "nobody watches", func() bool {
		k.b.feed.mu.Lock()
		defer k.b.feed.mu.Unlock()
		return !k.b.feed.watching
	})
}

// A transaction was rolled back: the next event, which reuses its number, must not count as already
// seen.
func TestAnEventIsHeardOfThoughItsNumberWasTakenBefore(t *testing.T) {
	k := setUp(t)
	l := k.b.feed.listen("cnv")
	defer l.leave()
	for _, c := range []struct {
		n    int64
		wake bool
	}{
		{4, true},
		{0, true}, // event 5 may have been rolled back
		{5, true},
		{5, false}, // reported again by the poll for other processes' events
		{4, false},
		{0, true},
		{6, true},
	} {
		k.b.feed.notify("cnv", c.n)
		woken := false
		select {
		case <-l.wake:
			woken = true
		default:
		}
		if woken != c.wake {
			t.Errorf("event %d wakes: %t, want %t", c.n, woken, c.wake)
		}
	}
}

// Each client gets every event once and in order, even if connections break or the server restarts.
func TestNothingIsLostOrToldTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	const clients, events, reopenings = 6, 400, 4
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			k := setUpWith(t, Options{Watch: 20 * time.Millisecond, BusyTimeout: patience})
			conversation := k.widget("GET conversations", "").text("items.0.id")
			other := *k // another process, which is not restarted
			other.b = k.open(Options{Dir: k.dir, BusyTimeout: patience})
			var turn sync.RWMutex // guards the backend, which is restarted
			var server atomic.Pointer[httptest.Server]
			server.Store(httptest.NewServer(k.b.Handler()))

			var all sync.WaitGroup
			for i := range clients {
				all.Go(func() { follow(k, &server, conversation, events, rand.New(rand.NewPCG(seed, uint64(i)))) })
			}
			for i, random := 1, rand.New(rand.NewPCG(seed, clients)); i < events; i++ {
				if random.IntN(2) == 0 {
					other.report(1)
					continue
				}
				turn.RLock()
				k.report(1)
				turn.RUnlock()
				if i%(events/reopenings) < 2 {
					turn.Lock()
					reopen(k, &server)
					turn.Unlock()
				}
			}
			all.Wait()
			server.Load().Close()
		})
	}
}

// reopen closes the server and its backend, and starts others on the same data.
func reopen(k *bench, server *atomic.Pointer[httptest.Server]) {
	k.b.Drain()
	server.Load().CloseClientConnections()
	server.Load().Close()
	if err := k.b.Close(); err != nil {
		k.Error(err)
	}
	k.b = k.open(Options{Dir: k.dir, Watch: 20 * time.Millisecond, BusyTimeout: patience})
	server.Store(httptest.NewServer(k.b.Handler()))
}

// follow reads a feed until its last event over streams that end at random, each from where the
// last one ended.
func follow(k *bench, server *atomic.Pointer[httptest.Server], conversation string, last int64, random *rand.Rand) {
	for at := int64(0); at < last; {
		p, err := k.dial(server.Load().URL, k.session, "?conversation_id="+conversation,
			"Accept", "text/event-stream", "Last-Event-ID", fmt.Sprintf("%s/%d", conversation, at))
		if err != nil {
			continue // the server is down for a moment
		}
		if status := p.res.StatusCode; status == 409 {
			p.leave() // the server has not noticed yet that earlier streams have ended
			continue
		} else if status != 200 {
			p.leave()
			k.Errorf("a stream after event %d is answered %d", at, status)
			return
		}
		for range 1 + random.IntN(80) {
			n := p.event()
			if n == 0 {
				break
			}
			if at++; n != at {
				p.leave()
				k.Errorf("after event %d comes %d", at-1, n)
				return
			}
			if at == last {
				break
			}
		}
		p.leave()
	}
}
