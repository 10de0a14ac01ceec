package upstream

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A network provides pipes for the pools of tests, and knows which are open.
type network struct {
	mu    sync.Mutex
	fails map[string]error // by address, the error of a connection attempt
	hangs map[string]bool  // attempts that end with their context
	far   map[string][]net.Conn
	dials []string
	open  int
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dials = append(n.dials, address)
	if n.hangs[address] {
		n.mu.Unlock()
		<-ctx.Done()
		n.mu.Lock()
		return nil, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	}
	if err := n.fails[address]; err != nil {
		return nil, &net.OpError{Op: "dial", Err: err}
	}
	near, far := net.Pipe()
	if n.far == nil {
		n.far = make(map[string][]net.Conn)
	}
	n.far[address] = append(n.far[address], far)
	n.open++
	return &countedConn{Conn: near, network: n}, nil
}

// last returns the upstream's end of the newest connection to an address.
func (n *network) last(address string) net.Conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.far[address][len(n.far[address])-1]
}

// set makes attempts to connect to an address fail, or succeed if err is nil.
func (n *network) set(address string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fails == nil {
		n.fails = make(map[string]error)
	}
	n.fails[address] = err
}

func (n *network) opened() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.open
}

// tried returns the addresses that were dialled since its last call.
func (n *network) tried() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := strings.Join(n.dials, " ")
	n.dials = nil
	return s
}

type countedConn struct {
	net.Conn
	network *network
	once    sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.network.mu.Lock(); c.network.open--; c.network.mu.Unlock() })
	return c.Conn.Close()
}

// poolOf returns a pool of addresses on a network. At the end of the test, when all
// connections were returned, none may be open.
func poolOf(t testing.TB, n *network, log io.Writer, addresses ...string) *Pool {
	t.Helper()
	o := Options{Connect: 5 * time.Second, Header: time.Minute, Stall: 30 * time.Second, Idle: 50 * time.Second,
		Dial: n.dial, Log: slog.New(slog.NewTextHandler(log, nil))}
	for _, a := range addresses {
		o.Addresses = append(o.Addresses, Address{Host: a})
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if left := n.opened(); left != 0 {
			t.Errorf("%d connections are open after Close", left)
		}
	})
	return p
}

func take(t testing.TB, p *Pool) *Conn {
	t.Helper()
	c, err := p.Take(context.Background(), Want{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAConnectionIsKeptAndTheLastUsedIsTakenFirst(t *testing.T) {
	n := new(network)
	p := poolOf(t, n, io.Discard, "a:80")
	one, two := take(t, p), take(t, p)
	if one.Reused() || two.Reused() || one == two {
		t.Fatalf("new connections: reused %v, %v", one.Reused(), two.Reused())
	}
	one.Keep(time.Now())
	two.Keep(time.Now())
	if c := take(t, p); c != two || !c.Reused() {
		t.Errorf("took %p (reused %v), want the last kept %p", c, c.Reused(), two)
	}
	if c := take(t, p); c != one {
		t.Errorf("took %p, want the other %p", c, one)
	}
	if three := take(t, p); three == one || three == two {
		t.Error("one connection was taken twice")
	} else {
		three.Drop(nil)
	}
	one.Keep(time.Now())
	fresh, err := p.Take(context.Background(), Want{Fresh: true})
	if err != nil || fresh.Reused() {
		t.Errorf("a fresh connection is asked for: %v, reused %v", err, fresh.Reused())
	}
	fresh.Drop(nil)
	if c, err := p.Take(context.Background(), Want{Now: time.Now().Add(p.options.Idle)}); err != nil || c == one {
		t.Errorf("took a connection that was idle for the whole idle timeout, %v", err)
	} else {
		c.Drop(nil)
	}
	two.Drop(nil)
	if p.addresses[0].busy != 0 || n.opened() != 0 {
		t.Errorf("all returned: %d busy, %d open", p.addresses[0].busy, n.opened())
	}
}

func TestConnectionsReturnedToAClosedPoolAreClosed(t *testing.T) {
	n := new(network)
	p := poolOf(t, n, io.Discard, "a:80")
	c := take(t, p)
	for range 2 { // closing again has no effect
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	c.Keep(time.Now())
	if n.opened() != 0 {
		t.Error("the connection is open")
	}
	if _, err := p.Take(context.Background(), Want{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v: want net.ErrClosed", err)
	}
}

func TestARefusedAddressIsSkipped(t *testing.T) {
	n := &network{fails: map[string]error{"bad:80": syscall.ECONNREFUSED}}
	p := poolOf(t, n, io.Discard, "bad:80", "good:80")
	for range 4 {
		c := take(t, p)
		if c.Address().Host != "good:80" {
			t.Errorf("got a connection to %v", c.Address())
		}
		c.Drop(nil)
	}
	if got, want := n.tried(), "bad:80 good:80 good:80 good:80 good:80"; got != want {
		t.Errorf("dialled %q, want %q", got, want)
	}
}

func TestIfNoAddressConnectsTheErrorIsErrUnavailable(t *testing.T) {
	n := &network{fails: map[string]error{"a:80": syscall.ECONNREFUSED, "b:80": syscall.ECONNREFUSED}}
	p := poolOf(t, n, io.Discard, "a:80", "b:80")
	for range 3 {
		_, err := p.Take(context.Background(), Want{})
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%v: want ErrUnavailable, and why", err)
		}
		if got := n.tried(); strings.Count(got, "a:80") != 1 || strings.Count(got, "b:80") != 1 {
			t.Errorf("dialled %q, want each once, healthy or not", got)
		}
	}
}

func BenchmarkTakeKeep(b *testing.B) {
	for _, addresses := range [][]string{{"a:80"}, {"a:80", "b:80", "c:80"}} {
		b.Run(strings.Join(addresses, ","), func(b *testing.B) {
			p := poolOf(b, new(network), io.Discard, addresses...)
			ctx := context.Background()
			now := time.Now()
			b.ReportAllocs()
			for b.Loop() {
				c, err := p.Take(ctx, Want{Now: now})
				if err != nil {
					b.Fatal(err)
				}
				c.AwaitHead(now)
				c.Keep(now)
			}
		})
	}
}

func TestIdleConnectionsAreBoundedAndClosedOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(network)
		o := options(Address{Host: "a:80"})
		o.Dial, o.MaxKept, o.Idle = n.dial, 2, 8*time.Second
		p := open(t, o)
		defer p.Close()
		one, two, three := take(t, p), take(t, p), take(t, p)
		one.Keep(time.Now())
		time.Sleep(4 * time.Second)
		two.Keep(time.Now())
		three.Keep(time.Now())
		if got := n.opened(); got != 2 {
			t.Fatalf("%d connections are kept, want 2", got)
		}
		for _, step := range []struct {
			wait time.Duration
			open int
		}{{4*time.Second - time.Millisecond, 2}, {time.Second + 2*time.Millisecond, 1}, {4 * time.Second, 0}} {
			time.Sleep(step.wait)
			synctest.Wait()
			if got := n.opened(); got != step.open {
				t.Errorf("%v later %d connections are open, want %d", step.wait, got, step.open)
			}
		}
	})
}

func TestClosingAPoolLeavesNothingBehind(t *testing.T) {
	n := new(network)
	p := poolOf(t, n, io.Discard, "a:80", "b:80")
	late := take(t, p)
	var exchanges sync.WaitGroup
	for range 8 {
		exchanges.Go(func() {
			for i := range 200 {
				c, err := p.Take(context.Background(), Want{})
				if err != nil {
					if !errors.Is(err, net.ErrClosed) {
						t.Errorf("%v: want net.ErrClosed", err)
					}
					return
				}
				c.AwaitHead(time.Now())
				switch i % 5 {
				case 0:
					c.Drop(nil)
				case 1:
					c.Drop(io.EOF)
				default:
					c.Keep(time.Now())
				}
			}
		})
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	exchanges.Wait()
	late.Keep(time.Now())
	if got := n.opened(); got != 0 {
		t.Errorf("%d connections are open", got)
	}
	for _, a := range p.addresses {
		if a.busy != 0 {
			t.Errorf("%v has %d exchanges in flight", a, a.busy)
		}
	}
}

func TestInvalidOptionsAreRejected(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"1 to 64":       func(o *Options) { o.Addresses = nil },
		"HOST:PORT":     func(o *Options) { o.Addresses[0].Host = "backend" },
		"twice":         func(o *Options) { o.Addresses = append(o.Addresses, o.Addresses[0]) },
		"Connect":       func(o *Options) { o.Connect = 0 },
		"Header":        func(o *Options) { o.Header = 0 },
		"Stream":        func(o *Options) { o.Stream = -1 },
		"Stall":         func(o *Options) { o.Stall = 0 },
		"Idle":          func(o *Options) { o.Idle = 0 },
		"zero, for the": func(o *Options) { o.MaxKept = -1 },
	} {
		t.Run(want, func(t *testing.T) {
			o := options(Address{Host: "a:80"})
			change(&o)
			if p, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: want %q", err, want)
				if p != nil {
					p.Close()
				}
			}
		})
	}
}
