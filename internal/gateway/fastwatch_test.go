package gateway

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/upstream"
	"github.com/weirlimit/weir/internal/wire"
)

// An upstream may fail in the very moment in which the last of a request goes out. The exchange ends its upload and its watch
// then, in whatever order the goroutines run, and never waits for a watch that nobody began.
func TestTheWatchEndsAlsoInTheMomentInWhichAnUploadEnds(t *testing.T) {
	o := newOrigin(t, func(s *served) { s.request() })
	e := open(t, nil, o.use)
	engine, err := e.gateway.newFastEngine(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	u, err := e.gateway.pool.Take(context.Background(), upstream.Want{})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Drop(nil)
	ours, theirs := net.Pipe()
	defer theirs.Close()
	ended := make(chan bool)
	go func() {
		defer close(ended)
		for range 100_000 {
			c := &fastConn{engine: engine, raw: ours, Conn: ours}
			x := &fastExchange{c: c}
			x.conn = u
			x.head = wire.Request{Method: http.MethodPost}
			x.body.reset(c, &x.head) // nothing of it is left
			l := &upload{done: make(chan struct{})}
			x.upload = l
			c.holdWatch()
			go x.sendBody(u, l)
			_, _ = x.quiet()
			if c.watch.Load() != watchOff {
				t.Error("the watch goes on")
				return
			}
		}
	}()
	within(t, time.Minute, "every exchange ends", ended)
}
