package fast

import (
	"slices"
	"time"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/upstream"
)

// switchProtocols passes a 101 on, and then every byte of both sides, until both have ended.
func (x *exchange) switchProtocols() {
	x.c.detach()
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
	c.engine.copies.Tunnel(
		relay.Side{From: pace.OneWay{Reader: &c.in, Of: bounds}, To: c.Conn, Conn: c},
		relay.Side{From: pace.OneWay{Reader: &u.Reader, Of: bounds}, To: u, Conn: u},
		c.engine.Log, bounds.HalfEnded)
}
