package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A checkedNetwork has addresses that answer every request with a status. 0 refuses connections,
// silent accepts them and says nothing.
type checkedNetwork struct {
	mu     sync.Mutex
	status map[string]int
	asked  []string    // host and target of each request
	at     []time.Time // when it came
	open   int         // connections
}

const silent = -1

func (n *checkedNetwork) set(address string, status int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.status == nil {
		n.status = make(map[string]int)
	}
	n.status[address] = status
}

func (n *checkedNetwork) dial(_ context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	status := n.status[address]
	if status == 0 {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	near, far := net.Pipe()
	n.open++
	go n.serve(far, status)
	return near, nil
}

func (n *checkedNetwork) serve(far net.Conn, status int) {
	defer func() {
		far.Close()
		n.mu.Lock()
		defer n.mu.Unlock()
		n.open--
	}()
	in := bufio.NewReader(far)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		n.mu.Lock()
		n.asked = append(n.asked, r.Method+" "+r.Host+r.RequestURI)
		n.at = append(n.at, time.Now())
		n.mu.Unlock()
		if status == silent {
			_, _ = io.Copy(io.Discard, in)
			return
		}
		fmt.Fprintf(far, "HTTP/1.1 %d x\r\nContent-Length: 0\r\n\r\n", status)
	}
}

// checking runs checks every five seconds in a bubble, until the test ends them.
func checking(t *testing.T, n *checkedNetwork, log io.Writer, hosts ...string) (p *Pool, end func()) {
	t.Helper()
	o := Options{Connect: 5 * time.Second, Header: time.Minute, Stall: 30 * time.Second, Idle: time.Hour, Dial: n.dial, Log: slog.New(slog.NewTextHandler(log, nil))}
	for _, host := range hosts {
		o.Addresses = append(o.Addresses, Address{Host: host})
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var checks sync.WaitGroup
	checks.Go(func() {
		p.Check(ctx, Check{Target: "/up?x=1", Host: "api.example.com", Every: 5 * time.Second, Within: 5 * time.Second})
	})
	synctest.Wait()
	return p, func() { cancel(); checks.Wait(); p.Close() }
}

// aRound is longer than the time between two checks.
const aRound = 6 * time.Second

func TestAFailedCheckLeavesAnAddressOutUntilOneSucceeds(t *testing.T) {
	for name, status := range map[string]int{"500": 500, "404": 404, "it refuses": 0, "it is silent": silent} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				n := new(checkedNetwork)
				n.set("a:80", status)
				n.set("b:80", 200)
				p, end := checking(t, n, &log, "a:80", "b:80")
				defer end()
				time.Sleep(3 * aRound)
				synctest.Wait()
				if got := who(t, p, 4); got != "b b b b" || p.addresses[0].failures != 0 {
					t.Errorf("a fails its checks, and requests go to %s; %d of them have failed", got, p.addresses[0].failures)
				}
				if p.States()[0].Well || !p.States()[1].Well || p.IsOut() {
					t.Errorf("the states are %+v", p.States())
				}
				n.set("a:80", 302)
				time.Sleep(3 * aRound)
				synctest.Wait()
				if got := who(t, p, 4); strings.Count(got, "a") != 2 || !p.States()[0].Well {
					t.Errorf("a passes its checks again, and requests go to %s", got)
				}
				if down, back := strings.Count(log.String(), "is down"), strings.Count(log.String(), "is back"); down != 1 || back != 1 {
					t.Errorf("logged %d times that it is down, %d that it is back: want one of each\n%s", down, back, &log)
				}
			})
		})
	}
}

func TestIfAllAddressesFailTheirChecksTheyAreTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(checkedNetwork)
		n.set("a:80", 503)
		n.set("b:80", 503)
		p, end := checking(t, n, io.Discard, "a:80", "b:80")
		defer end()
		if !p.IsOut() {
			t.Error("all fail, and that is not reported")
		}
		if got := who(t, p, 2); strings.Contains(got, "none") {
			t.Errorf("requests go to %s", got)
		}
	})
}

func TestAnAddressIsUsedIfRequestsAndChecksAreContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(checkedNetwork)
		n.set("a:80", 200)
		n.set("b:80", 200)
		p, end := checking(t, n, io.Discard, "a:80", "b:80")
		defer end()
		a := p.addresses[0]
		fail := func() {
			for {
				c := take(t, p)
				if c.turn.at == a {
					c.Drop(errors.New("malformed"))
					return
				}
				defer c.Drop(nil)
			}
		}
		fail()
		if got := who(t, p, 3); got != "b b b" {
			t.Errorf("a request has failed at a, whose check succeeds, and the next go to %s", got)
		}
		time.Sleep(firstPause)
		if got := who(t, p, 4); strings.Count(got, "a") != 2 {
			t.Errorf("after the pause requests go to %s", got)
		}
		// An outage that both see ends with the first check that succeeds, not with a probe.
		n.set("a:80", 0)
		time.Sleep(aRound)
		p.mu.Lock()
		a.failures, a.until = 6, time.Now().Add(maxPause)
		p.mu.Unlock()
		if got := who(t, p, 3); got != "b b b" {
			t.Errorf("a is down, and requests go to %s", got)
		}
		n.set("a:80", 200)
		time.Sleep(aRound)
		synctest.Wait()
		if got := who(t, p, 4); strings.Count(got, "a") != 2 {
			t.Errorf("the check succeeds again, and requests go to %s", got)
		}
	})
}

func TestChecksAreSpreadAndKeepTheirConnectionsToThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(checkedNetwork)
		n.set("a:80", 200)
		p, end := checking(t, n, io.Discard, "a:80")
		kept := take(t, p)
		kept.Keep(time.Now())
		time.Sleep(500 * time.Second)
		synctest.Wait()
		n.mu.Lock()
		if n.open != 1 || p.States()[0].Kept != 1 || p.States()[0].Busy != 0 {
			t.Errorf("%d connections, state %+v; want only the one that was kept", n.open, p.States()[0])
		}
		gaps := map[time.Duration]bool{}
		for i, asked := range n.asked {
			if asked != "GET api.example.com/up?x=1" {
				t.Errorf("asked %q", asked)
			}
			if i > 0 {
				gap := n.at[i].Sub(n.at[i-1])
				if gaps[gap] = true; gap < 4500*time.Millisecond || gap > 5500*time.Millisecond {
					t.Errorf("%v between two checks: want 5 s, a tenth more or less", gap)
				}
			}
		}
		if len(n.asked) < 90 || len(gaps) < 10 {
			t.Errorf("%d checks in 500 s, with %d different gaps", len(n.asked), len(gaps))
		}
		n.mu.Unlock()
		if take(t, p) != kept {
			t.Error("the kept connection was not used again")
		}
		end()
		kept.Drop(nil)
	})
}

// A check reaches a Unix socket by its path, with any Host, and names it so in the log.
func TestASocketIsCheckedAtItsPath(t *testing.T) {
	for _, c := range []struct{ host, want string }{{"", "GET localhost/up"}, {"api.example.com", "GET api.example.com/up"}} {
		synctest.Test(t, func(t *testing.T) {
			n := new(checkedNetwork)
			n.set("/run/app.sock", 200)
			var networks []string
			var log strings.Builder
			o := Options{Connect: 5 * time.Second, Header: time.Minute, Stall: 30 * time.Second, Idle: time.Hour,
				Addresses: []Address{{Host: socketHost("/run/app.sock")}}, Log: slog.New(slog.NewTextHandler(&log, nil)),
				Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
					networks = append(networks, network)
					return n.dial(ctx, network, address)
				}}
			p, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			ctx, cancel := context.WithCancel(t.Context())
			var checks sync.WaitGroup
			checks.Go(func() {
				p.Check(ctx, Check{Target: "/up", Host: c.host, Every: 5 * time.Second, Within: 5 * time.Second})
			})
			synctest.Wait()
			if !p.States()[0].Well || len(n.asked) != 1 || n.asked[0] != c.want {
				t.Errorf("the socket answers 200, its state is %+v, and it was asked %q\n%s", p.States()[0], n.asked, &log)
			}
			n.set("/run/app.sock", 503)
			time.Sleep(aRound)
			synctest.Wait()
			cancel()
			checks.Wait()
			if p.States()[0].Well || !strings.Contains(log.String(), "health check /up of unix:/run/app.sock: status 503") {
				t.Errorf("the socket answers 503, its state is %+v, and the log has\n%s", p.States()[0], &log)
			}
			for _, network := range networks {
				if network != "unix" {
					t.Errorf("a socket was dialled by network %q", network)
				}
			}
		})
	}
}
