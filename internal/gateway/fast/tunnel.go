package fast

import (
	"io"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/upstream"
)

// switchProtocols passes a 101 on, and then every byte of both sides, until both have ended.
func (x *exchange) switchProtocols() {
	if err := rules.CheckAnswer(x.res.Status, x.websocket, x.res.Values("Upgrade")); err != nil {
		x.upstreamFailed(err)
		return
	}
	x.takeFields()
	x.fields = slices.DeleteFunc(x.fields, func(f answer.Field) bool { return x.c.engine.IsReserved(f.Name) })
	x.complete(x.res.Status)
	x.closes = false
	x.beginHead(x.res.Status, x.res.Reason)
	x.out = append(x.out, "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"...)
	x.Status = x.res.Status
	c, u := x.c, x.conn
	_, _ = x.quiet()
	x.tunnelled = true
	c.engine.TakenOver.Add(c.raw)
	c.engine.Open.Add(-1) // a drain does not wait for it, but closes it
	defer func() {
		c.engine.TakenOver.Remove(c.raw)
		c.engine.Open.Add(1) // conn.end subtracts it
	}()
	if _, err := c.Write(x.out); err == nil {
		c.tunnel(u)
	}
	c.up.Store(nil)
	x.conn = nil
	u.Drop(nil)
}

// tunnel copies both ways until both have ended, one has failed, or a bound of a tunnel is reached.
func (c *conn) tunnel(u *upstream.Conn) {
	c.moveDeadline(time.Time{})
	u.AwaitStream()
	pace.EndVanished(c.raw)
	pace.EndVanished(pace.UnderTLS(u.Conn))
	bounds := c.engine.Limits.Tunnel(func() {
		_ = c.raw.Close()
		_ = u.Close()
	})
	bounds.Start()
	defer bounds.Stop()
	var both sync.WaitGroup
	guard := func() {
		if failure := recover(); failure != nil {
			c.engine.Log.Error("copying for a websocket panicked", "panic", failure, "stack", string(debug.Stack()))
			_ = c.raw.Close()
			_ = u.Close()
		}
	}
	both.Go(func() {
		defer guard()
		oneWay(&c.engine.copies, u, pace.OneWay{Reader: &c.in, Of: bounds}, u, c)
	})
	func() {
		defer guard()
		oneWay(&c.engine.copies, c.Conn, pace.OneWay{Reader: &u.Reader, Of: bounds}, c, u)
	}()
	both.Wait() // also after a panic: until then the tunnel is open
}

// oneWay copies until from ends, and then ends the sending half of toConn. If that fails, or the
// copying does, it closes both connections.
func oneWay(b *relay.Buffers, to io.Writer, from pace.OneWay, toConn, fromConn interface{ Close() error }) {
	if _, received, sent := b.Copy(to, from, relay.Plain); received == nil && sent == nil {
		if half, ok := toConn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			from.Of.HalfEnded()
			return
		}
	}
	_ = toConn.Close()
	_ = fromConn.Close()
}
