package fast

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/upstream"
	"github.com/weirlimit/weir/internal/wire"
)

// An upstream may fail at the moment when the end of a request is sent. The
// exchange then ends its upload and its watch, for any order of the goroutines, and
// never waits for a watch that has not begun.
func TestTheWatchEndsIfTheUploadEndsAtTheSameTime(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pool, err := upstream.New(upstream.Options{
		Addresses: []upstream.Address{{Host: l.Addr().String()}}, Connect: time.Minute, Header: time.Minute, Stall: time.Minute, Idle: time.Minute,
		Dial: new(net.Dialer).DialContext, Log: slog.Default(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	r := &rules.Rules{Options: rules.Options{Decider: new(weir.Decider), Log: slog.Default()}}
	engine := New(context.Background(), r, Options{Clock: pace.NewClock()})
	u, err := pool.Take(context.Background(), upstream.Want{})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Drop(nil)
	ours, theirs := net.Pipe()
	defer theirs.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 100_000 {
			c := &conn{engine: engine, raw: ours, Conn: ours}
			x := &exchange{c: c}
			x.conn = u
			x.head = wire.Request{Method: http.MethodPost}
			x.body.reset(c, &x.head) // nothing of it is left
			l := relay.NewUpload()
			x.upload = l
			c.holdWatch()
			go l.Run(u, engine.Log, func() (received, stuck error) { return x.pass(u, l) }, c.releaseWatch)
			_, _ = x.quiet()
			if c.watch.Load() != watchOff {
				t.Error("the watch continues")
				return
			}
		}
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("waited in vain for every exchange to end")
	}
}
