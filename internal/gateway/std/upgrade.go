package std

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"

	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/wire"
)

// switchProtocols passes a 101 on, and then every byte of both sides, until both have ended. The
// error is why the client's connection could not be switched.
func (x *exchange) switchProtocols(w http.ResponseWriter, c *relay.Call) error {
	a, u := &c.Answer, c.Conn()
	if err := rules.CheckAnswer(a.Status, true, a.Values("Upgrade")); err != nil {
		return err
	}
	h := w.Header()
	putFields(h, a)
	maps.DeleteFunc(h, func(name string, _ []string) bool { return x.engine.IsReserved(name) })
	x.leave = func() { _ = u.Close() }
	client, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return fmt.Errorf("take over the client's connection: %w", err)
	}
	defer client.Close()
	u.AwaitStream()
	pace.EndVanished(pace.UnderTLS(u.Conn))
	if _, err := client.Write(appendSwitch(nil, a, h)); err != nil {
		return err
	}
	early, _ := rw.Reader.Peek(rw.Reader.Buffered()) // there is no error: it is all there
	x.engine.buffers.Tunnel(
		relay.Side{From: io.MultiReader(bytes.NewReader(early), client), To: client, Conn: halved{client}},
		relay.Side{From: &u.Reader, To: u, Conn: u},
		x.engine.Log, nil)
	return nil
}

// A halved is a connection of a client, whose halves end one at a time.
type halved struct{ net.Conn }

// CloseWrite closes the sending half.
func (c halved) CloseWrite() error { return pace.CloseWrite(c.Conn) }

// appendSwitch appends the head of a 101 with the fields of h, which the limiter has completed.
func appendSwitch(b []byte, a *wire.Response, h http.Header) []byte {
	b = wire.AppendStatus(b, a.Status, a.Reason)
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, v := range h[name] {
			b = wire.AppendField(b, name, v)
		}
	}
	return append(b, "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"...)
}
