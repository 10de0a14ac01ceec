package upstream

import (
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"
)

// A listener accepts real connections of a pool.
type listener struct {
	net.Listener
	accepted chan net.Conn
}

func listen(t testing.TB, around func(net.Listener) net.Listener) *listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if around != nil {
		l = around(l)
	}
	all := &listener{l, make(chan net.Conn, 100)}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.accepted <- c
		}
	})
	t.Cleanup(func() {
		l.Close()
		accepting.Wait()
		close(all.accepted)
		for c := range all.accepted {
			c.Close()
		}
	})
	return all
}

func options(addresses ...Address) Options {
	return Options{Addresses: addresses, Connect: 5 * time.Second, Header: time.Minute, Stall: 30 * time.Second,
		Idle: time.Minute, Log: slog.New(slog.DiscardHandler)}
}

func open(t testing.TB, o Options) *Pool {
	t.Helper()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// settle waits until a socket has received the other side's action, as quiet
// reports.
func settle(t *testing.T, c *Conn) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); c.quiet(); {
		if time.Now().After(deadline) {
			t.Fatal("the other side's action does not arrive")
		}
	}
}
