package fast

import (
	"context"
	"net/netip"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/wire"
)

// An Asked is a request that Options.Answer answers. It is valid until that returns, and so is all
// that it leads to. It is for one goroutine.
type Asked struct{ x *exchange }

// Context returns the context of the connection. It ends with the connection.
func (a Asked) Context() context.Context { return &a.x.c.ctx }

// Peer returns the address of the other side of the connection.
func (a Asked) Peer() netip.Addr { return a.x.c.addr }

// Head returns the head of the request.
func (a Asked) Head() *wire.Request { return &a.x.head }

// Detach is called before something that may wait for more than the limiter.
func (a Asked) Detach() { a.x.c.detach() }

// Close ends the connection with the answer.
func (a Asked) Close() { a.x.closes = true }

// Write writes the answer, to a HEAD without its body. The engine adds what belongs to the message:
// a Date, the length, and whether the connection continues. It must be called once.
func (a Asked) Write(status int, fields []answer.Field, body []byte) {
	x := a.x
	x.fields = append(x.fields[:0], fields...)
	x.complete(status)
	x.send(status, body)
}
