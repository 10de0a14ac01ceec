package http2

import (
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // RFC 6455, section 4.2.2, has it
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/wire"
)

// openTunnel asks the upstream for the websocket that an extended CONNECT asks for (RFC 8441), as a
// client of HTTP/1.1 would, and passes every byte of both sides, until both have ended.
func (x *exchange) openTunnel() {
	c := relay.New()
	x.call = c
	defer x.endCall()
	c.Pool, c.Method, c.Log, c.Inform, c.Upgrades, c.Alone = x.Site.Pool, x.head.Method, x.c.engine.Log, x.inform, true, true
	key := newKey()
	c.Request = x.appendUpgrade(c.Request[:0], key)
	asked := time.Since(x.Start)
	err := c.Do(x.s.ctx, x.Start.Add(asked))
	x.UpstreamTime = time.Since(x.Start) - asked
	x.Upstream = c.At
	if err == nil && c.Answer.Status == http.StatusSwitchingProtocols {
		if err = rules.CheckAnswer(c.Answer.Status, true, c.Answer.Values("Upgrade")); err == nil && !isAccepted(&c.Answer, key) {
			err = errors.New("it accepted another websocket than the one that was asked for")
		}
		if err == nil {
			x.switchProtocols(c)
			return
		}
	}
	if err != nil {
		x.forwardFailed(err)
		return
	}
	x.pass(c)
}

// appendUpgrade appends the head by which HTTP/1.1 asks for a websocket.
func (x *exchange) appendUpgrade(b []byte, key string) []byte {
	onward := x.onwardOf([]string{"websocket"})
	b = append(append(append(append(b, x.head.Method...), ' '), x.Site.EscapedBase...), x.onward...)
	b = wire.AppendField(append(b, " HTTP/1.1\r\n"...), "Host", onward.Host)
	x.head.Fields = slices.DeleteFunc(x.head.Fields, func(f wire.Field) bool { return f.Name == "sec-websocket-key" })
	b, _ = x.appendForwarded(b)
	b = x.appendForwarding(b, &onward)
	b = wire.AppendField(b, "Sec-WebSocket-Key", key)
	return append(b, "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"...)
}

// newKey returns the key of a websocket (RFC 6455, section 4.1).
func newKey() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	return base64.StdEncoding.EncodeToString(random[:])
}

// isAccepted reports whether an answer accepts the websocket of a key (RFC 6455, section 4.2.2).
func isAccepted(a *wire.Response, key string) bool {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // as above
	accepts := a.Values("Sec-WebSocket-Accept")
	return len(accepts) == 1 && accepts[0] == base64.StdEncoding.EncodeToString(sum[:])
}

// switchProtocols answers that the tunnel is open, and serves it.
func (x *exchange) switchProtocols(c *relay.Call) {
	x.takeFields(&c.Answer)
	x.dropReserved()
	x.fields = slices.DeleteFunc(x.fields, func(f answer.Field) bool { return wire.EqualFold(f.Name, "Sec-WebSocket-Accept") })
	x.complete(c.Answer.Status)
	x.Status = http.StatusOK
	if !x.sendHead(false, false) {
		x.Gone = true
		return
	}
	x.c.beginTunnel(x.s)
	defer x.c.endTunnel()
	x.c.flush()
	x.tunnel(c)
}

// tunnel copies both ways until both have ended, one has failed, or a bound of a tunnel is reached.
func (x *exchange) tunnel(c *relay.Call) {
	u := c.Conn()
	u.AwaitStream()
	pace.EndVanished(x.c.raw)
	pace.EndVanished(pace.UnderTLS(u.Conn))
	x.body.tunnel = true
	end := func() {
		_ = u.Close()
		_ = x.body.Close()
	}
	bounds := x.c.engine.Limits.Tunnel(end)
	bounds.Start()
	defer bounds.Stop()
	var both sync.WaitGroup
	guard := func() {
		if failure := recover(); failure != nil {
			x.c.engine.Log.Error("copying for a websocket panicked", "panic", failure, "stack", string(debug.Stack()))
			end()
		}
	}
	both.Go(func() {
		defer guard()
		_, received, sent := x.c.engine.copies.Copy(u, pace.OneWay{Reader: &x.body, Of: bounds}, relay.Plain)
		if received != nil || sent != nil || u.CloseWrite() != nil {
			end()
			return
		}
		bounds.HalfEnded()
	})
	func() {
		defer guard()
		_, received, sent := x.c.engine.copies.Copy(tunnelled{x}, pace.OneWay{Reader: &u.Reader, Of: bounds}, relay.Plain)
		if received != nil || sent != nil || x.send(nil, true) != nil {
			end()
			return
		}
		x.c.flush()
		bounds.HalfEnded()
	}()
	both.Wait() // also after a panic: until then the tunnel is open
}

// tunnelled writes to the client of a websocket.
type tunnelled struct{ x *exchange }

func (t tunnelled) Write(p []byte) (int, error) {
	if err := t.x.send(p, false); err != nil {
		return 0, err
	}
	t.x.c.flush()
	return len(p), nil
}

var _ io.Writer = tunnelled{}

// beginTunnel records that a stream is a websocket, for which a drain does not wait.
func (c *conn) beginTunnel(s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tunnels++
	s.tunnel = true
	s.closeBody() // its times are a tunnel's
	c.leaveTunnels()
}

func (c *conn) endTunnel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tunnels--
}

// leaveTunnels has a drain not wait for a connection that has only websockets left: it closes them
// last. The mutex is held.
func (c *conn) leaveTunnels() {
	if c.tunnels == 0 || !c.ending.final || len(c.streams) > c.tunnels || c.ending.takenOver {
		return
	}
	c.ending.takenOver = true
	c.engine.TakenOver.Add(c.raw)
	c.engine.Open.Add(-1)
}
